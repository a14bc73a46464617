#include "convoy/sync/node_state.hpp"

namespace convoy::sync {

NodeState::NodeState(Carver& carver, const engine::Program& program,
                     const optim::Optimizer& optimizer, std::span<const int64_t> lane_slots,
                     int workers, int locals, int64_t grains) {
  const int64_t size = program.arena().size();
  const auto chunks = static_cast<int64_t>(cut_into_chunks(program.arena()).size());
  const auto preparations = static_cast<int64_t>(program.preparations().size());
  arrivals = carver.take<Counter>(locals);
  // No bucket is shorter than a chunk.
  for (auto* counters : {&completed, &released, &ready}) *counters = carver.take<Counter>(chunks);
  for (auto* counters : {&claimed, &made}) *counters = carver.take<Counter>(preparations);
  for (auto* counter : {&reported, &agreed, &measured, &finished, &spoken, &informed}) {
    *counter = carver.take<Counter>(1);
  }
  for (auto& r : results) r = carver.take<engine::GrainResult>(grains);
  for (auto& r : reports) r = carver.take<Report>(workers);
  for (auto& r : speeds) r = carver.take<WorkerReport>(workers);
  grain_norm2 = carver.take<double>(grains);
  model.gradient_norm2 = carver.take<double>(chunks);
  model.weight_norm2 = carver.take<double>(chunks);
  model.weights = carver.take<float>(size);
  prepared = carver.take<float>(program.prepared_size());
  for (int i = 0; i < optimizer.state_arrays(); ++i) {
    model.states.push_back(carver.take<float>(size));
  }
  for (const int64_t count : lane_slots) slots.push_back(carver.take<float>(count * size));
}

std::vector<HeldSum> NodeState::held(const LaneTable& lanes, int64_t arena) const {
  std::vector<HeldSum> all;
  for (size_t lane = 0; lane < lanes.ranges.size(); ++lane) {
    for (const RangeSum::Kept& kept : RangeSum::kept(lanes.ranges[lane])) {
      all.push_back({kept.node, slots[lane].data() + static_cast<int64_t>(kept.slot) * arena});
    }
  }
  return all;
}

}  // namespace convoy::sync
