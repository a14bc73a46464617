#pragma once
// A model compiled for one grain on one kind of device: a straight list of instructions, a memory
// plan for its activations, and the table of contents of its arena. A Program is immutable and
// shared by all lanes; a Lane holds the memory to run one grain at a time.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/engine/algorithm.hpp"
#include "convoy/engine/arena.hpp"
#include "convoy/engine/kernels/kernels.hpp"
#include "convoy/model/graph.hpp"

namespace convoy::engine {

struct CompileOptions {
  int64_t grain = 16;
  int threads_per_lane = 1;
  /// Drop the output of batch norm + ReLU after its last forward use and compute it again (one
  /// cheap pass) when the backward pass needs it: 16 % less activation memory on ResNet-50, 26 %
  /// on ResNet-20.
  bool recompute_norm = true;
  /// Algorithms of convolutions; those not listed are direct. Throws InputError where one cannot
  /// do its layer.
  std::map<model::LayerId, ConvAlgorithms> algorithms = {};
  /// Images that lowering puts into one matrix product; 0: the whole grain.
  int64_t lowered_together = 0;
  /// Kernel table; null: the best this CPU can run.
  const Kernels* kernels = nullptr;
};

/// What an instruction does, for profiles and for counting.
enum class Phase { forward, backward_data, backward_weights, backward_other, reorder, border };

const char* to_string(Phase phase);

/// One line of a Program, for people.
struct InstructionInfo {
  model::LayerId layer = 0;
  Phase phase = Phase::forward;
  std::string kernel;  ///< "oneDNN jit:avx2", "own avx2", …
};

/// Sums over the real samples of a grain.
struct GrainResult {
  double loss = 0;
  int64_t correct = 0;
};

/// The linear layers at the end of a network, and its loss, if that is how it ends: a chain that
/// something else than a lane can compute for the samples of several (GrainRun::handover). All rows
/// are as lanes store them: row-major, their lengths multiples of 8, padding zero.
struct Tail {
  struct Linear {
    model::LayerId layer = 0;
    int64_t inputs = 0;   ///< stored floats of a row
    int64_t outputs = 0;  ///< padded
    int64_t weight = 0;   ///< arena offset of [outputs][inputs]
    int64_t bias = -1;    ///< arena offset of [outputs]; −1: none
    bool relu = false;
    float dropout = 0;  ///< rate, after the ReLU
    model::LayerId dropout_layer = 0;
    int64_t end = 0;  ///< arena floats before it are this layer's and those after it
  };
  std::vector<Linear> layers;
  int64_t classes = 0;
  float smoothing = 0;
  int64_t floats = 0;  ///< the first ones of the arena are the tail's

  /// Only its last `count` layers; 0: all of them.
  Tail last(int count) const;
};

/// Everything outside a lane that one grain's run depends on.
struct GrainRun {
  const float* input = nullptr;     ///< grain × input, NCHW
  const int32_t* labels = nullptr;  ///< grain; −1: not a real sample
  bool training = true;             ///< false: running statistics, no dropout, no backward pass
  uint64_t seed = 1;
  int64_t step = 0;
  int64_t first_sample = 0;  ///< number of the grain's first sample within the batch
  float gradient_scale = 1;  ///< 1/batch: the gradient is the batch's mean
  /// Where gradients (and the grain's statistics) go. Whole arena: tensor t at gradient + t.offset.
  /// Layer by layer: each layer's tensors at `gradient`, to be taken away in on_layer.
  float* gradient = nullptr;
  bool layer_by_layer = false;
  /// Called in the backward pass when a layer's gradients, arena floats [begin, end), are complete:
  /// before the layer's input gradient is computed, last layer first.
  std::function<void(int64_t begin, int64_t end)> on_layer;
  /// Called in the forward pass before a layer reads its weights, arena floats [begin, end), and
  /// what was prepared from them.
  std::function<void(int64_t begin, int64_t end)> before_layer;
  /// Called between the forward and the backward pass.
  std::function<void(const GrainResult& result)> on_loss;
  /// Computes the tail (Program::tail) instead of the lane, between the forward and the backward
  /// pass of what comes before it: takes the grain's rows of the tail's input, gives its loss and,
  /// in training (else null), the gradient of these rows. on_layer is not called for the tail.
  std::function<void(const float* rows, GrainResult& result, float* gradient)> handover;
  int tail_layers = 0;  ///< only so many of the tail's last layers are handed over; 0: all
  /// Called after each instruction, with when it began and ended; slows the run down a little.
  std::function<void(size_t instruction, Seconds begin, Seconds end)> on_instruction;
};

/// The weights that all lanes read: the arena, and copies of convolution weights in the forms that
/// some kernels want (transposed, transformed), made anew after each update.
struct Weights {
  float* arena = nullptr;
  float* prepared = nullptr;
};

class Program;

/// Memory and bound kernels to run grains, one at a time. Made by Program::make_lane, by the
/// thread that will run it (its memory is local to that thread's NUMA node).
class Lane {
 public:
  virtual ~Lane() = default;
  /// Forward, loss and (in training) backward of one grain.
  virtual GrainResult run(const GrainRun& grain) = 0;
  /// The network's output after run(): grain × classes, plain.
  virtual void output(std::span<float> plain) const = 0;
  /// Seconds spent in each instruction since the last call; enables the measurement.
  virtual std::vector<double> take_profile() = 0;
};

class Program {
 public:
  Program(const model::Graph& graph, const CompileOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Arena& arena() const;
  int64_t grain() const;
  const model::Graph& graph() const;
  /// Activations, saved values and scratch of one lane.
  Bytes lane_memory() const;
  /// The most of it that is alive at once: no memory plan could do with less.
  Bytes least_lane_memory() const;
  /// Floats of Weights::prepared.
  int64_t prepared_size() const;
  /// Largest span of one layer's gradients, in floats (for GrainRun::layer_by_layer).
  int64_t largest_layer() const;

  /// None: the network does not end in a chain of linear layers (each but the last with a ReLU, and
  /// dropout after it at most) and a softmax, or begins with it.
  const std::optional<Tail>& tail() const;

  std::unique_ptr<Lane> make_lane(const Weights& weights) const;

  /// A prepared copy of a layer's weights, arena floats [begin, end); made anew in `units` pieces.
  struct Preparation {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t units = 0;
  };
  std::vector<Preparation> preparations() const;
  /// Makes units [begin, end) of preparation `index` anew from the arena.
  void prepare(const Weights& weights, size_t index, int64_t begin, int64_t end) const;
  /// Makes all of them anew.
  void prepare(const Weights& weights) const;

  std::vector<InstructionInfo> instructions() const;
  /// Instructions that only convert layouts, the network's borders excepted.
  int reorder_count() const;

  struct Compiled;

 private:
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace convoy::engine
