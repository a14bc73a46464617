#include "convoy/plan/virtual_target.hpp"

#include <algorithm>
#include <limits>

#include "convoy/base/error.hpp"

namespace convoy::plan {

double recent_loss(const VirtualRun& run, size_t window, Seconds until) {
  const auto end = std::ranges::upper_bound(run.points, until, {}, &VirtualPoint::time);
  const auto count = static_cast<std::ptrdiff_t>(window);
  if (end - run.points.begin() < count) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (auto p = end - count; p != end; ++p) sum += p->loss;
  return sum / static_cast<double>(window);
}

TuneTarget::Outcome VirtualTarget::train(const TuneSetting& setting, Seconds time,
                                         Stretch stretch) {
  VirtualSetting s = common_;
  s.groups = setting.groups;
  s.momentum = setting.momentum;
  s.measured = setting.measured;
  s.learning_rate = setting.learning_rate;
  s.turn = turn_(setting.groups);
  const Seconds begin = training_.time();
  Outcome outcome;
  const VirtualRun run = training_.run(s, [&](const VirtualRun& so_far) {
    outcome.reached = stretch == Stretch::training && recent_loss(so_far, kWindow) <= target_loss_;
    return outcome.reached || so_far.points.back().time - begin >= time;
  });
  outcome.applied = run.applied;
  outcome.took = training_.time() - begin;
  // The second half: at the beginning all that are tried are alike.
  outcome.loss = run.mean_loss(begin + Seconds{outcome.took.value / 2});
  return outcome;
}

void VirtualTarget::go_back() {
  check(kept_.has_value(), "something was kept");
  VirtualTraining::State state = *kept_;
  state.time = training_.time();  // which is spent
  training_.restore(state);
}

}  // namespace convoy::plan
