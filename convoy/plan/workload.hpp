#pragma once
// What a network's training step is made of, layer by layer: from a measured profile, or from its
// arithmetic for machines that are not here.

#include <cstdint>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/engine/program.hpp"
#include "convoy/model/graph.hpp"
#include "convoy/plan/cluster.hpp"
#include "convoy/plan/step_time.hpp"
#include "convoy/sync/stepper.hpp"

namespace convoy::plan {

struct LayerWork {
  std::string name;
  Seconds forward;      ///< of a sample, by the reference worker with all its lanes
  Seconds backward;     ///< likewise, both gradients
  int64_t weights = 0;  ///< floats
  /// Of linear layers at the end of the network: stored floats of a sample, else 0.
  int64_t inputs = 0;
  int64_t outputs = 0;

  bool is_tail() const { return inputs > 0; }
};

struct Workload {
  std::string model;
  std::vector<LayerWork> layers;  ///< in the order of the forward pass; those with work or weights
  Flops flops;                    ///< of a sample, in training
  /// What the reference worker does: seconds above are of it. Nodes that are given in GFLOP/s are
  /// compared with this.
  double reference_gflops = 1;
  Seconds data;        ///< to prepare a sample, by the threads that do it beside the lanes
  LinearTime linear;   ///< of the linear layers at the end
  Seconds update;      ///< of the whole model, by the reference worker: sums of lanes, optimizer
  Bytes model_memory;  ///< weights, gradients, optimizer, whatever the batch
  int64_t grain = 0;   ///< that it was made for; 0: any
  Bytes grain_memory;  ///< of a lane, with that grain
  std::string origin;  ///< "measured on …", "from its arithmetic"

  int64_t weights() const;
  int64_t tail_weights(int last) const;
  /// Layers of the tail.
  int tail() const;
  Seconds sample() const;  ///< forward and backward
  /// How many times as fast as the reference a worker of a node is.
  double speed(const NodeType& node) const;
};

/// Times by the arithmetic at 1 GFLOP/s, for nodes that are given in GFLOP/s. The gradient of the
/// input and that of the weights take as long as the forward pass each.
Workload workload_of(const model::Graph& graph);

/// Runs a few steps with `options` and takes the times of every instruction. The update and memory
/// are the stepper's.
Workload measure_workload(const engine::Program& program, const optim::Optimizer& optimizer,
                          sync::StepperOptions options);

}  // namespace convoy::plan
