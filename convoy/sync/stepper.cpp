#include "convoy/sync/stepper.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <numeric>

#include "convoy/base/error.hpp"

namespace convoy::sync {
namespace {

/// Floats summed and updated at a time: a few of them fit the first-level cache.
constexpr int64_t kChunk = 2048;

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

/// A lane's share of the batch: a contiguous run of grains.
Range grains_of(int lane, int lanes, int64_t grains) {
  return {grains * lane / lanes, grains * (lane + 1) / lanes};
}

}  // namespace

/// A piece of one tensor: the unit of summing and updating. Norms are added up over chunks in
/// order, so they do not depend on the number of lanes.
struct Stepper::Chunk {
  size_t tensor = 0;
  int64_t begin = 0;  // arena floats
  int64_t end = 0;
};

struct Stepper::LaneState {
  std::unique_ptr<engine::Lane> lane;
  std::unique_ptr<RangeSum> sum;
  AlignedBuffer workspace;
  // Evaluation inputs; made on first use.
  AlignedBuffer inputs;
  std::vector<int32_t> labels;
  std::vector<float> output;
};

Stepper::Stepper(const engine::Program& program, const optim::Optimizer& optimizer,
                 const StepperOptions& options)
    : program_(program),
      optimizer_(optimizer),
      options_(options),
      grains_(options.batch / program.grain()),
      measure_norms_(optimizer.needs_norms() || options.clip_norm > 0 || options.measure_noise),
      weights_(AlignedBuffer::of_floats(program.arena().size())),
      prepared_(AlignedBuffer::of_floats(program.prepared_size())),
      results_(static_cast<size_t>(grains_)),
      grain_norm2_(static_cast<size_t>(grains_)),
      crew_(options.lanes, options.cores) {
  check(options.batch % program.grain() == 0, "the grain divides the batch");
  const engine::Arena& arena = program.arena();
  for (int i = 0; i < optimizer.state_arrays(); ++i) {
    states_.push_back(AlignedBuffer::of_floats(arena.size()));
    state_pointers_.push_back(states_.back().floats().data());
  }
  for (size_t t = 0; t < arena.tensors().size(); ++t) {
    const engine::Tensor& tensor = arena.tensors()[t];
    const bool weight = tensor.role == model::Role::weight;
    segments_.push_back({tensor.offset, tensor.stored, options.decay_all || weight, weight});
    const auto* norm = std::get_if<model::BatchNorm>(&program.graph().layer(tensor.layer).kind);
    statistic_momentum_.push_back(norm != nullptr ? norm->momentum : 0);
    const int64_t end = tensor.offset + tensor.stored;
    for (int64_t at = tensor.offset; at < end; at += kChunk) {
      chunks_.push_back({t, at, std::min(at + kChunk, end)});
    }
  }
  chunk_gradient_norm2_.resize(chunks_.size());
  chunk_weight_norm2_.resize(chunks_.size());
  gradient_norm2_.resize(segments_.size());
  weight_norm2_.resize(segments_.size());

  lane_states_.resize(static_cast<size_t>(options.lanes));
  const engine::Weights shared{weights_.floats().data(), prepared_.floats().data()};
  crew_.run([&](int lane) {
    auto state = std::make_unique<LaneState>();
    const Range range = grains_of(lane, options_.lanes, grains_);
    state->lane = program_.make_lane(shared);
    state->sum =
        std::make_unique<RangeSum>(range.begin, range.end, arena.size(), program_.largest_layer());
    state->workspace = AlignedBuffer::of_floats(TreeTotal::workspace_size(grains_, kChunk));
    lane_states_[static_cast<size_t>(lane)] = std::move(state);
  });
}

Stepper::~Stepper() = default;

Stepper::Memory Stepper::memory(const engine::Program& program, const optim::Optimizer& optimizer,
                                const StepperOptions& options) {
  const int64_t arena = program.arena().size();
  const int64_t grains = options.batch / program.grain();
  Memory m;
  m.weights = {4 * (arena + program.prepared_size())};
  m.optimizer = {4 * arena * optimizer.state_arrays()};
  for (int lane = 0; lane < options.lanes; ++lane) {
    const Range range = grains_of(lane, options.lanes, grains);
    m.gradients += RangeSum::memory(range.begin, range.end, arena, program.largest_layer());
    m.gradients += Bytes{4 * TreeTotal::workspace_size(grains, kChunk)};
  }
  m.activations = options.lanes * program.lane_memory();
  m.inputs = {options.lanes * 4 * program.grain() * program.graph().input_shape().size()};
  return m;
}

std::vector<std::span<float>> Stepper::states() {
  std::vector<std::span<float>> spans;
  for (AlignedBuffer& state : states_) spans.push_back(state.floats());
  return spans;
}

void Stepper::weights_changed() {
  const engine::Weights shared{weights_.floats().data(), prepared_.floats().data()};
  crew_.run([&](int lane) { program_.prepare_weights(shared, lane, lanes()); });
}

std::span<const Stepper::Chunk> Stepper::strip(int lane) const {
  const auto count = static_cast<int64_t>(chunks_.size());
  const Range range = grains_of(lane, lanes(), count);
  return std::span(chunks_).subspan(static_cast<size_t>(range.begin),
                                    static_cast<size_t>(range.end - range.begin));
}

void Stepper::run_grains(int lane, int64_t step, GrainSource& source) {
  LaneState& state = *lane_states_[static_cast<size_t>(lane)];
  const Range range = grains_of(lane, lanes(), grains_);
  state.sum->restart();
  for (int64_t g = range.begin; g < range.end; ++g) {
    const GrainSource::Samples samples = source.get(step, g);
    const RangeSum::Target target = state.sum->next();
    engine::GrainRun run;
    run.input = samples.inputs;
    run.labels = samples.labels;
    run.seed = options_.seed;
    run.step = step;
    run.first_sample = g * program_.grain();
    run.gradient_scale = 1.0F / static_cast<float>(options_.batch);
    run.gradient = target.gradient;
    run.layer_by_layer = target.layer_by_layer;
    double& norm2 = grain_norm2_[static_cast<size_t>(g)];
    norm2 = 0;
    run.on_layer = [&](int64_t begin, int64_t end) {
      if (options_.measure_noise) {
        norm2 += parameter_norm2(target.gradient + (target.layer_by_layer ? 0 : begin), begin, end);
      }
      state.sum->layer_complete(begin, end);
    };
    results_[static_cast<size_t>(g)] = state.lane->run(run);
    state.sum->grain_complete();
    source.release(step, g);
  }
}

/// Of the parameters among floats [begin, end) of the arena, whose gradients start at `gradient`.
double Stepper::parameter_norm2(const float* gradient, int64_t begin, int64_t end) const {
  double sum = 0;
  for (const engine::Tensor& t : program_.arena().tensors()) {
    if (t.kind != engine::Kind::parameter || t.offset < begin || t.offset >= end) continue;
    sum += optim::squared_norm({gradient + (t.offset - begin), static_cast<size_t>(t.stored)});
  }
  return sum;
}

double Stepper::mean_grain_norm2() const {
  // A grain's part is its mean gradient times its share of the batch, 1 / grains.
  const double sum = std::accumulate(grain_norm2_.begin(), grain_norm2_.end(), 0.0);
  return sum * static_cast<double>(grains_);
}

const float* Stepper::total(const Chunk& chunk, std::span<float> workspace) const {
  return total_->sum(chunk.begin, chunk.end, workspace);
}

void Stepper::sum_and_measure(int lane) {
  LaneState& state = *lane_states_[static_cast<size_t>(lane)];
  for (const Chunk& chunk : strip(lane)) {
    const auto index = static_cast<size_t>(&chunk - chunks_.data());
    const auto length = static_cast<size_t>(chunk.end - chunk.begin);
    const float* sum = total(chunk, state.workspace.floats());
    const bool parameter = program_.arena().tensors()[chunk.tensor].kind == engine::Kind::parameter;
    chunk_gradient_norm2_[index] = parameter ? optim::squared_norm({sum, length}) : 0;
    chunk_weight_norm2_[index] =
        optim::squared_norm({weights_.floats().data() + chunk.begin, length});
  }
}

optim::StepContext Stepper::context(int64_t step, double learning_rate) {
  optim::StepContext c;
  c.step = step;
  c.learning_rate = learning_rate;
  if (!measure_norms_) return c;
  std::fill(gradient_norm2_.begin(), gradient_norm2_.end(), 0);
  std::fill(weight_norm2_.begin(), weight_norm2_.end(), 0);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    gradient_norm2_[chunks_[i].tensor] += chunk_gradient_norm2_[i];
    weight_norm2_[chunks_[i].tensor] += chunk_weight_norm2_[i];
  }
  c.gradient_norm2 = gradient_norm2_;
  c.weight_norm2 = weight_norm2_;
  const double norm =
      std::sqrt(std::accumulate(gradient_norm2_.begin(), gradient_norm2_.end(), 0.0));
  if (options_.clip_norm > 0 && norm > options_.clip_norm) {
    c.gradient_scale = options_.clip_norm / norm;
  }
  return c;
}

void Stepper::update_statistics(const Chunk& chunk, const float* sum) {
  const float momentum = statistic_momentum_[chunk.tensor];
  const float each = momentum / static_cast<float>(grains_);
  float* running = weights_.floats().data();
  for (int64_t i = chunk.begin; i < chunk.end; ++i) {
    running[i] = (1 - momentum) * running[i] + each * sum[i - chunk.begin];
  }
}

void Stepper::update_strip(int lane, const optim::StepContext& context) {
  LaneState& state = *lane_states_[static_cast<size_t>(lane)];
  for (const Chunk& chunk : strip(lane)) {
    const float* sum = total(chunk, state.workspace.floats());
    if (program_.arena().tensors()[chunk.tensor].kind != engine::Kind::parameter) {
      update_statistics(chunk, sum);
      continue;
    }
    optimizer_.update(context, segments_[chunk.tensor], static_cast<int64_t>(chunk.tensor),
                      chunk.begin, chunk.end, weights_.floats().data(), sum, state_pointers_);
  }
}

StepResult Stepper::step(int64_t step, double learning_rate, GrainSource& source) {
  StepResult result;
  const Seconds begin = now();
  optim::StepContext shared_context;
  const engine::Weights shared{weights_.floats().data(), prepared_.floats().data()};

  // A lane that leaves early would keep the others waiting at the barrier for ever, so whatever
  // goes wrong is kept, everybody passes every barrier, and the errors are thrown at the end.
  std::vector<std::exception_ptr> errors(static_cast<size_t>(lanes()) + 1);
  bool failed = false;
  const auto guarded = [&errors](size_t owner, const auto& work) noexcept {
    try {
      work();
    } catch (...) {
      if (!errors[owner]) errors[owner] = std::current_exception();
    }
  };
  int stage = 0;
  const auto add_up = [&] {
    ++stage;
    if (stage == 1) {
      result.computing = now() - begin;
      if (options_.measure_noise) result.grain_norm2 = mean_grain_norm2();
      int64_t correct = 0;
      for (const engine::GrainResult& r : results_) {
        result.loss += r.loss;
        correct += r.correct;
      }
      result.loss /= static_cast<double>(options_.batch);
      result.accuracy = static_cast<double>(correct) / static_cast<double>(options_.batch);
      result.finite = std::isfinite(result.loss);
      if (!result.finite) return;
      std::vector<HeldSum> held;
      for (const auto& state : lane_states_) {
        held.insert(held.end(), state->sum->held().begin(), state->sum->held().end());
      }
      total_ = std::make_unique<TreeTotal>(std::move(held), grains_);
      if (!measure_norms_) shared_context = context(step, learning_rate);
    } else if (stage == 2 && measure_norms_) {
      shared_context = context(step, learning_rate);
      result.gradient_norm =
          std::sqrt(std::accumulate(gradient_norm2_.begin(), gradient_norm2_.end(), 0.0));
      result.finite = std::isfinite(result.gradient_norm);
    }
  };
  const auto any_error = [&] {
    return std::any_of(errors.begin(), errors.end(), [](const auto& e) { return e != nullptr; });
  };
  const auto between = [&]() noexcept {
    failed = any_error();
    if (failed) return;
    guarded(errors.size() - 1, add_up);
    failed = any_error();
  };
  std::barrier barrier(lanes(), between);

  crew_.run([&](int lane) {
    const auto own = static_cast<size_t>(lane);
    guarded(own, [&] { run_grains(lane, step, source); });
    barrier.arrive_and_wait();
    if (failed || !result.finite) return;
    if (measure_norms_) {
      guarded(own, [&] { sum_and_measure(lane); });
      barrier.arrive_and_wait();
      if (failed || !result.finite) return;
    }
    guarded(own, [&] { update_strip(lane, shared_context); });
    barrier.arrive_and_wait();
    if (failed) return;
    guarded(own, [&] { program_.prepare_weights(shared, lane, lanes()); });
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return result;
}

EvalResult Stepper::evaluate(int64_t grains, const Fill& fill, const Output& output) {
  const auto grain = static_cast<size_t>(program_.grain());
  const auto values = static_cast<size_t>(program_.graph().input_shape().size());
  const auto classes = static_cast<size_t>(program_.graph().classes());
  std::vector<engine::GrainResult> results(static_cast<size_t>(grains));
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> samples{0};
  crew_.run([&](int lane) {
    LaneState& state = *lane_states_[static_cast<size_t>(lane)];
    if (state.inputs.empty()) {
      state.inputs = AlignedBuffer::of_floats(static_cast<int64_t>(grain * values));
      state.labels.resize(grain);
      state.output.resize(grain * classes);
    }
    for (int64_t g = next.fetch_add(1); g < grains; g = next.fetch_add(1)) {
      const int64_t real = fill(g, state.inputs.floats().first(grain * values), state.labels);
      engine::GrainRun run;
      run.input = state.inputs.floats().data();
      run.labels = state.labels.data();
      run.training = false;
      results[static_cast<size_t>(g)] = state.lane->run(run);
      samples += real;
      if (output) {
        state.lane->output(state.output);
        output(g, std::span<const float>(state.output).first(static_cast<size_t>(real) * classes));
      }
    }
  });
  EvalResult total;
  int64_t correct = 0;
  for (const engine::GrainResult& r : results) {
    total.loss += r.loss;
    correct += r.correct;
  }
  total.samples = samples;
  if (total.samples > 0) {
    total.loss /= static_cast<double>(total.samples);
    total.accuracy = static_cast<double>(correct) / static_cast<double>(total.samples);
  }
  return total;
}

std::vector<double> Stepper::take_profile() {
  std::vector<double> sum(program_.instructions().size(), 0.0);
  for (const auto& state : lane_states_) {
    const std::vector<double> own = state->lane->take_profile();
    for (size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
  }
  return sum;
}

}  // namespace convoy::sync
