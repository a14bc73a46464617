#include "convoy/plan/lemmas.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

constexpr double kFloat = 4;  // bytes

double weights(const LayerSize& layer) {
  return static_cast<double>(layer.inputs * layer.outputs) *
         static_cast<double>(layer.kernel * layer.kernel);
}

double activations(const LayerSize& layer, int64_t batch) {
  return static_cast<double>(layer.inputs * batch) * static_cast<double>(layer.side * layer.side);
}

}  // namespace

double efficiency(double overhead, int workers) {
  return (1 + overhead) / (1 + workers * overhead);
}

double allowed_overhead(double efficiency, int workers) {
  const double speedup = efficiency * workers;
  return speedup > 1 ? (1 - efficiency) / (speedup - 1) : std::numeric_limits<double>::infinity();
}

int most_workers(double overhead, double efficiency) {
  check(overhead > 0 && efficiency > 0, "there is some overhead, and some efficiency asked for");
  constexpr double kRounding = 1e-9;
  const double most = (1 + overhead - efficiency) / (efficiency * overhead) + kRounding;
  return std::max(
      1, static_cast<int>(std::min(most, static_cast<double>(std::numeric_limits<int>::max()))));
}

int servers_needed(Bytes model, int groups, double link, Seconds computing) {
  check(link > 0 && computing.value > 0, "a link and a step take some time");
  const double moved = static_cast<double>(model.value) * groups;
  return std::max(1, static_cast<int>(std::ceil(moved / (link * computing.value))));
}

double data_parallel_bytes(const LayerSize& layer, double overlap) {
  return kFloat * weights(layer) * (2 - overlap);
}

double model_parallel_bytes(const LayerSize& layer, int64_t batch) {
  return 2 * kFloat * activations(layer, batch);
}

double hybrid_bytes(const LayerSize& layer, int64_t batch, int workers, int copies,
                    double overlap) {
  const double within = model_parallel_bytes(layer, batch) / copies;
  if (copies == 1) return within;
  const double between = data_parallel_bytes(layer, overlap) * copies / workers;
  // Copies of one worker each have nothing to exchange within.
  return copies == workers ? between : within + between;
}

double ideal_copies(const LayerSize& layer, int64_t batch, int workers, double overlap) {
  const double side2 = static_cast<double>(layer.side * layer.side);
  const double kernel2 = static_cast<double>(layer.kernel * layer.kernel);
  return std::sqrt(2.0 * workers * static_cast<double>(batch) * side2 /
                   (static_cast<double>(layer.outputs) * kernel2 * (2 - overlap)));
}

int best_copies(const LayerSize& layer, int64_t batch, int workers, double overlap) {
  int best = 1;
  for (int copies = 2; copies <= workers; ++copies) {
    if (workers % copies != 0) continue;
    if (hybrid_bytes(layer, batch, workers, copies, overlap) <
        hybrid_bytes(layer, batch, workers, best, overlap)) {
      best = copies;
    }
  }
  return best;
}

Seconds group_step(const GroupTimes& times, int workers) {
  return {std::max(times.computing.value / workers, workers * times.network.value)};
}

Seconds update_time(const GroupTimes& times, int workers, int groups) {
  const double turn = group_step(times, workers / groups).value + times.classifier.value;
  return {std::max(times.classifier.value, turn / groups)};
}

}  // namespace convoy::plan
