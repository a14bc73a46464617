#pragma once
// Linear layers at the end of a network that are split over workers or merged on one
// (parallel.classifier), in a training.

#include <functional>
#include <memory>

#include "convoy/sync/merged_tail.hpp"
#include "convoy/sync/tail_part.hpp"
#include "convoy/sync/team.hpp"
#include "convoy/train/grouping.hpp"
#include "convoy/train/trainer.hpp"

namespace convoy::train {

/// Refuses what cannot be split.
void check_classifier(const job::Job& job, const engine::Program& program,
                      const optim::Optimizer& optimizer, const sync::Team& team);

class Classifier {
 public:
  /// `groups`: null where all step together. All must outlive it.
  Classifier(const Prepared& prepared, const sync::Team& team, Grouping* groups)
      : p_(prepared), team_(team), groups_(groups) {}

  /// What a stepper needs to know.
  void prepare(sync::StepperOptions& options);
  /// When rank 0 has the model; collective.
  void load();

 private:
  std::unique_ptr<sync::TailPart> make(const sync::ModelArrays& arrays);

  const Prepared& p_;
  const sync::Team& team_;
  Grouping* groups_;
  sync::MergedTail* merged_ = nullptr;  // the stepper's
};

}  // namespace convoy::train
