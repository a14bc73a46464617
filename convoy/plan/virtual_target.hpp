#pragma once
// A training in virtual time that can be tuned (tuner.hpp).

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "convoy/plan/tuner.hpp"
#include "convoy/plan/virtual_training.hpp"

namespace convoy::plan {

class VirtualTarget final : public TuneTarget {
 public:
  /// `turn`: of a group, by the number of groups. It has reached its target when the mean loss of
  /// the last `kWindow` updates is at most `target_loss`.
  /// `common`: what is not tuned.
  VirtualTarget(VirtualTraining& training, std::vector<int> groups,
                std::function<Seconds(int groups)> turn, const VirtualSetting& common,
                double target_loss)
      : training_(training),
        groups_(std::move(groups)),
        turn_(std::move(turn)),
        common_(common),
        target_loss_(target_loss) {}

  std::vector<int> groups() const override { return groups_; }
  Seconds update_time(int groups) const override { return {turn_(groups).value / groups}; }
  Outcome train(const TuneSetting& setting, Seconds time, Stretch stretch) override;
  void keep() override { kept_ = training_.keep(); }
  void go_back() override;

  static constexpr size_t kWindow = 100;

 private:
  VirtualTraining& training_;
  std::vector<int> groups_;
  std::function<Seconds(int groups)> turn_;
  VirtualSetting common_;
  double target_loss_;
  std::optional<VirtualTraining::State> kept_;
};

/// Mean loss of the last `window` updates, up to a time; infinite before there are so many.
double recent_loss(const VirtualRun& run, size_t window,
                   Seconds until = {std::numeric_limits<double>::infinity()});

}  // namespace convoy::plan
