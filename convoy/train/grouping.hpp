#pragma once
// A training in groups (cluster.groups): who is with whom, the servers, and the steps of a group
// from one evaluation or checkpoint to the next.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/sync/group_model.hpp"
#include "convoy/sync/stepper.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/feeding.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

/// True where a model is trained by groups, or by one of them against servers.
bool in_groups(const job::Job& job, int workers);
/// Refuses groups and servers that these workers cannot be, or that the job's mode knows nothing
/// of.
void check_groups(const job::Job& job, const sync::Team& team);
/// As the job has it, or as is best for these workers.
sync::GroupLayout layout_of(const job::Job& job, const sync::Team& team);

class Grouping {
 public:
  /// Collective over `world`.
  Grouping(const Prepared& prepared, const sync::Team& world);

  /// Of this worker's group, or of a server alone.
  const sync::Team& team() const { return group_ ? *group_ : sync::Team::alone(); }
  bool serves_only() const { return !group_.has_value(); }
  /// The group's own communicator, and the servers; not of a server alone.
  comm::Communicator& members() const { return *comm_; }
  sync::RemoteModel& servers() { return *model_; }
  const sync::GroupLayout& layout() const { return layout_; }
  /// Of the group, or after the groups: by which evaluations are parted.
  int part() const;
  int parts() const;

  /// What a stepper needs to know.
  void prepare(sync::StepperOptions& options);
  /// Worker 0's model for all; collective.
  void load(sync::Stepper& stepper);

  /// Trains on the batches [first, last) together with the others; collective over the world. Then
  /// the stepper has the whole model.
  sync::GroupSegment run(sync::Stepper& stepper, Feeding& feeding, int64_t first, int64_t last,
                         const SegmentCalls& calls);

  /// "4 groups of 2; updates were 2.97 behind on average, at most 9".
  std::string describe() const;

 private:
  void want(Feeding& feeding, const sync::Stepper& stepper, int64_t batch);

  const sync::Team& world_;
  sync::GroupLayout layout_;
  std::unique_ptr<comm::Communicator> comm_;
  std::optional<sync::Team> group_;
  std::optional<sync::GroupModel> model_;
  std::pair<int64_t, sync::GrainRange> wanted_{-1, {}};  // the last batch announced, and what of it
  int64_t refused_ = 0;
  double rate_ = 1;  // by which learning rates are multiplied
  Bytes bucket_;     // unless the job says it
};

}  // namespace convoy::train
