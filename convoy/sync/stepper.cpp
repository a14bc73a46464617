#include "convoy/sync/stepper.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "convoy/base/error.hpp"
#include "convoy/base/load_meter.hpp"

namespace convoy::sync {

struct Stepper::LaneState {
  std::unique_ptr<engine::Lane> lane;
  std::unique_ptr<RangeSum> sum;
  AlignedBuffer workspace;
  // In this step:
  Seconds waited;           // for weights
  Seconds waited_for_data;  // for samples
  Seconds computed;
  Seconds finished;  // when
  int64_t grains = 0;
  // Of its last grain, in this step or before, for hold_back:
  Seconds last_cpu;
  Seconds last_took;
  // Evaluation inputs; made on first use.
  AlignedBuffer inputs;
  std::vector<int32_t> labels;
  std::vector<float> output;
};

/// Room for the partial sums of each lane of the host, whatever shares will come.
std::vector<int64_t> Stepper::lane_slots() const {
  std::vector<int64_t> slots;
  if (!options_.balances()) {
    for (const GrainRange& range : division_->lanes.ranges) slots.push_back(RangeSum::slots(range));
    return slots;
  }
  for (const int rank : team_.members(team_.node())) {
    const int64_t lanes = lane_counts_[static_cast<size_t>(rank)];
    const int64_t most = std::max(options_.most_shares[static_cast<size_t>(rank)],
                                  division_->ranges[static_cast<size_t>(rank)].size());
    const int64_t each = RangeSum::most_slots((std::min(most, grains_) + lanes - 1) / lanes);
    slots.insert(slots.end(), static_cast<size_t>(lanes), each);
  }
  return slots;
}

std::shared_ptr<const Division> Stepper::divided(std::span<const int64_t> shares) const {
  auto division = std::make_shared<Division>(divide(team_, grains_, shares, lane_counts_));
  if (node_) division->held = node_->held(division->lanes, program_.arena().size());
  return division;
}

void Stepper::set_shares(std::span<const int64_t> shares) {
  check(options_.balances(), "shares may change");
  for (size_t i = 0; i < shares.size(); ++i) {
    check(shares[i] <= options_.most_shares[i], "a share is not larger than was announced");
  }
  division_ = divided(shares);
  total_ = std::make_unique<TreeTotal>(division_->held, grains_);
}

Stepper::Stepper(const engine::Program& program, const optim::Optimizer& optimizer,
                 const StepperOptions& options, const Team& team)
    : program_(program),
      optimizer_(optimizer),
      options_(options),
      team_(team),
      grains_(options.batch / program.grain()),
      lane_counts_(team.gather_numbers(options.lanes, "exchanging the numbers of lanes")),
      preparations_(program.preparations()),
      crew_(options.lanes, options.cores) {
  check(options.batch % program.grain() == 0, "the grain divides the batch");
  check(team.nodes() == 1 || !options.measure_noise, "noise is measured on one host");
  division_ = divided(options.shares);
  const std::vector<int64_t> slots = lane_slots();
  Carver counting;
  NodeState(counting, program, optimizer, slots, team.size(), team.locals(), grains_);
  memory_ = std::make_unique<NodeMemory>(team, counting.used());
  Carver carver(memory_->data());
  node_ = std::make_unique<NodeState>(carver, program, optimizer, slots, team.size(), team.locals(),
                                      grains_);
  division_ = divided(options.shares);
  UpdateOptions update{grains_, options.decay_all, options.clip_norm, options.measure_noise};
  if (options.make_tail) {
    check(program.tail().has_value(), "the network ends in linear layers");
    check(options.clip_norm == 0 && !optimizer.needs_norms() && !options.measure_noise,
          "nobody knows the norm of a gradient that is computed in several places");
    update.first = program.tail()->last(options.tail_layers).floats;
    tail_ = options.make_tail(node_->model);
  }
  updater_ = std::make_unique<Updater>(program, optimizer, update, node_->model);
  total_ = std::make_unique<TreeTotal>(division_->held, grains_);

  for (const engine::InstructionInfo& info : program.instructions()) {
    instruction_names_.push_back(fmt::format("{} {}", program.graph().layer(info.layer).name,
                                             engine::to_string(info.phase)));
  }
  lane_states_.resize(static_cast<size_t>(options.lanes));
  const int first = division_->lanes.first[static_cast<size_t>(team.local())];
  crew_.run([&](int lane) {
    auto state = std::make_unique<LaneState>();
    state->lane = program_.make_lane(shared());
    state->sum = std::make_unique<RangeSum>(
        division_->of_lane(team, lane), program_.arena().size(), program_.largest_layer(),
        node_->slots[static_cast<size_t>(first) + static_cast<size_t>(lane)]);
    state->workspace = AlignedBuffer::of_floats(TreeTotal::workspace_size(grains_, kChunk));
    lane_states_[static_cast<size_t>(lane)] = std::move(state);
  });
  if (team.nodes() > 1 || options.exchange.remote != nullptr) {
    exchange_ = std::make_unique<Exchange>(team, *updater_, *node_, grains_, options.exchange,
                                           options.trace);
  }
}

Stepper::~Stepper() = default;

Stepper::Memory Stepper::memory(const engine::Program& program, const optim::Optimizer& optimizer,
                                const StepperOptions& options, int64_t share) {
  const int64_t arena = program.arena().size();
  const int64_t grains = options.batch / program.grain();
  Memory m;
  m.weights = {4 * (arena + program.prepared_size())};
  m.optimizer = {4 * arena * optimizer.state_arrays()};
  for (int lane = 0; lane < options.lanes; ++lane) {
    const GrainRange range = part_of({0, share > 0 ? share : grains}, lane, options.lanes);
    m.gradients += Bytes{4 * RangeSum::slots(range) * arena};
    m.gradients += RangeSum::scratch(range, program.largest_layer());
    m.gradients += Bytes{4 * TreeTotal::workspace_size(grains, kChunk)};
  }
  m.activations = options.lanes * program.lane_memory();
  m.inputs = {options.lanes * 4 * program.grain() * program.graph().input_shape().size()};
  return m;
}

void Stepper::weights_changed() {
  ++versions_;
  settle();
}

void Stepper::load(const std::function<void()>& fill) {
  if (team_.rank() == 0) fill();
  if (team_.across() != nullptr && team_.local() == 0) {
    team_.from_first(*team_.across(), std::as_writable_bytes(weights()), "receiving the model");
    for (const std::span<float> state : states()) {
      team_.from_first(*team_.across(), std::as_writable_bytes(state), "receiving the state");
    }
  }
  team_.meet("receiving the model");
  weights_changed();
}

/// Of all workers, the grains of their lanes.
void Stepper::begin_tail(int64_t step, double learning_rate) {
  std::vector<std::vector<GrainRange>> lanes(static_cast<size_t>(team_.size()));
  for (size_t r = 0; r < lanes.size(); ++r) {
    for (int64_t lane = 0; lane < lane_counts_[r]; ++lane) {
      lanes[r].push_back(part_of(division_->ranges[r], lane, lane_counts_[r]));
    }
  }
  tail_->begin(step, learning_rate, std::move(lanes));
}

void Stepper::collect_tail(bool states) {
  if (!tail_) return;
  tail_->collect(states);
  team_.meet("collecting the classifier");
}

void Stepper::collect() {
  settle();
  collect_tail(true);
  if (exchange_) exchange_->share_states();
  if (team_.size() > 1) team_.meet("collecting the model");
}

/// Units of preparation `index` are claimed by whoever comes by, in this worker or another of the
/// host, and everybody goes on when all are made.
void Stepper::prepare(size_t index) {
  const auto units = static_cast<uint64_t>(preparations_[index].units);
  const uint64_t end = versions_ * units;
  const uint64_t begin = end - units;
  const auto lanes = static_cast<uint64_t>(division_->lanes.lanes());
  const uint64_t block = std::max<uint64_t>(1, units / (4 * lanes));
  Counter& claimed = node_->claimed[index];
  Counter& made = node_->made[index];
  for (uint64_t at = claimed.load(); at < end;) {
    // A host without grains passes versions over.
    const uint64_t to = at < begin ? begin : std::min(at + block, end);
    if (!claimed.compare_exchange_weak(at, to)) continue;
    if (at < begin) {
      made.fetch_add(to - at, std::memory_order_release);
      at = to;
      continue;
    }
    const auto first = static_cast<int64_t>(at - begin);
    program_.prepare(shared(), index, first, first + static_cast<int64_t>(to - at));
    made.fetch_add(to - at, std::memory_order_release);
    at = to;
  }
  await([&] { return made.load(std::memory_order_acquire) >= end; }, team_.deadline(),
        [] { return "weights that another lane prepares"; });
}

void Stepper::prepare_layer(int64_t begin) {
  for (size_t i = 0; i < preparations_.size(); ++i) {
    if (preparations_[i].begin == begin) prepare(i);
  }
}

void Stepper::settle() {
  if (exchange_) exchange_->settle();
  if (tail_) tail_->settle();
  crew_.run([&](int) {
    for (size_t i = 0; i < preparations_.size(); ++i) prepare(i);
  });
}

/// The workers of this host wait for one another.
void Stepper::meet() {
  if (team_.locals() == 1) return;
  ++meetings_;
  node_->arrivals[static_cast<size_t>(team_.local())].store(meetings_, std::memory_order_release);
  for (size_t i = 0; i < node_->arrivals.size(); ++i) {
    await([&] { return node_->arrivals[i].load(std::memory_order_acquire) >= meetings_; },
          team_.deadline(), [&] { return team_.name(team_.members(team_.node())[i]); });
  }
}

/// A lane's strip of the arena. Where shares follow speeds, so do strips: whoever runs half as many
/// grains as another updates half as much.
template <class Work>
void Stepper::each_of_strip(int lane, const Work& work) {
  LaneState& state = *lane_states_[static_cast<size_t>(lane)];
  const std::vector<Chunk>& chunks = updater_->chunks();
  const auto count = static_cast<int64_t>(chunks.size());
  const LaneTable& lanes = division_->lanes;
  const int number = lanes.first[static_cast<size_t>(team_.local())] + lane;
  GrainRange mine = part_of({0, count}, number, lanes.lanes());
  if (options_.balances()) {
    const GrainRange& range = division_->of_lane(team_, lane);
    mine = {count * range.first / grains_, count * range.last / grains_};
  }
  for (auto i = static_cast<size_t>(mine.first); i < static_cast<size_t>(mine.last); ++i) {
    work(i, total_->sum(chunks[i].begin, chunks[i].end, state.workspace.floats()));
  }
}

void Stepper::run_grains(int lane, int64_t step, GrainSource& source) {
  try {
    run_each_grain(lane, step, source);
  } catch (...) {
    // Other lanes would wait for this one's rows.
    if (tail_) tail_->give_up(std::current_exception());
    throw;
  }
}

void Stepper::run_each_grain(int lane, int64_t step, GrainSource& source) {
  LaneState& state = *lane_states_[static_cast<size_t>(lane)];
  const GrainRange range = division_->of_lane(team_, lane);
  state.sum->restart(range);
  state.waited = {};
  state.waited_for_data = {};
  state.computed = {};
  state.grains = range.size();
  Exchange::Passed passed;
  for (int64_t g = range.first; g < range.last; ++g) {
    const Seconds asked = now();
    const GrainSource::Samples samples = source.get(step, g);
    const Seconds got = now();
    state.waited_for_data += got - asked;
    // What comes at once is no wait, and would only make the trace longer.
    constexpr Seconds kAtOnce{20e-6};
    if (options_.trace != nullptr && got - asked > kAtOnce) {
      options_.trace->add(lane, Trace::Kind::wait, "data", asked, got);
    }
    Seconds aside;  // time that is no computing of this grain
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
    double& norm2 = node_->grain_norm2[static_cast<size_t>(g)];
    norm2 = 0;
    if (g == range.first) {
      run.before_layer = [&](int64_t begin, int64_t end) {
        const Seconds before = now();
        if (exchange_) exchange_->await_weights(begin, end);
        const Seconds after = now();
        state.waited += after - before;
        if (options_.trace != nullptr && exchange_) {
          options_.trace->add(lane, Trace::Kind::wait, "weights", before, after);
        }
        prepare_layer(begin);
        aside += now() - before;
      };
    }
    if (tail_) {
      run.tail_layers = options_.tail_layers;
      run.handover = [&](const float* rows, engine::GrainResult& result, float* gradient) {
        const Seconds before = now();
        tail_->handover(rows, run.labels, g, result, gradient);
        aside += now() - before;
      };
    }
    run.on_loss = [&](const engine::GrainResult& result) {
      node_->results[steps_ % 2][static_cast<size_t>(g)] = result;
      if (!exchange_) return;
      const Seconds before = now();
      exchange_->loss_known(g + 1 == range.last);
      aside += now() - before;
    };
    run.on_layer = [&](int64_t begin, int64_t end) {
      if (options_.measure_noise) {
        norm2 += parameter_norm2(target.gradient + (target.layer_by_layer ? 0 : begin), begin, end);
      }
      state.sum->layer_complete(begin, end);
      if (exchange_ && options_.exchange.overlap && g + 1 == range.last) {
        passed = exchange_->passed(passed, begin, end);
      }
    };
    if (options_.trace != nullptr && options_.trace->on()) trace_instructions(lane, run);
    const Seconds begin = now();
    if (options_.hold_back) options_.hold_back(lane, step, state.last_cpu, state.last_took);
    const Seconds held_back = now() - begin;
    const Seconds cpu = options_.hold_back ? thread_time() : Seconds{};
    state.lane->run(run);
    const Seconds computed = now() - begin - aside;
    state.computed += computed;
    if (options_.hold_back) {
      state.last_cpu = thread_time() - cpu;
      state.last_took = computed - held_back;
    }
    state.sum->grain_complete();
    source.release(step, g);
  }
  state.finished = now();
  const int64_t all = program_.arena().size();
  if (exchange_ && range.size() > 0) exchange_->passed(passed, all, all);
}

WorkerReport Stepper::own_report(int64_t step) const {
  WorkerReport report;
  double speed = 0;
  for (const auto& state : lane_states_) {
    report.grains += state->grains;
    report.data += state->waited_for_data;
    report.weights += state->waited;
    if (state->grains > 0) speed += static_cast<double>(state->grains) / state->computed.value;
  }
  report.compute = {speed > 0 ? static_cast<double>(report.grains) / speed : 0};
  report.data.value /= lanes();
  report.weights.value /= lanes();
  if (options_.look) options_.look(step, report);
  return report;
}

/// From when each lane was done with its grains.
void Stepper::trace_waits(Seconds end) {
  if (options_.trace == nullptr || !options_.trace->on()) return;
  for (int lane = 0; lane < lanes(); ++lane) {
    const Seconds begin = lane_states_[static_cast<size_t>(lane)]->finished;
    options_.trace->add(lane, Trace::Kind::wait, "other lanes and workers", begin, end);
  }
}

void Stepper::trace_instructions(int lane, engine::GrainRun& run) {
  run.on_instruction = [this, lane](size_t index, Seconds begin, Seconds end) {
    options_.trace->add(lane, Trace::Kind::compute, instruction_names_[index], begin, end);
  };
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
  const double sum = std::accumulate(node_->grain_norm2.begin(), node_->grain_norm2.end(), 0.0);
  return sum * static_cast<double>(grains_);
}

/// What everybody's grains and votes come to.
void Stepper::add_up(StepResult& result) const {
  if (options_.measure_noise) result.grain_norm2 = mean_grain_norm2();
  int64_t correct = 0;
  for (const engine::GrainResult& r : node_->results[steps_ % 2]) {
    result.loss += r.loss;
    correct += r.correct;
  }
  result.loss /= static_cast<double>(options_.batch);
  result.accuracy = static_cast<double>(correct) / static_cast<double>(options_.batch);
  result.finite = std::isfinite(result.loss);
  for (const Report& r : node_->reports[steps_ % 2]) result.vote = std::max(result.vote, r.vote);
  if (options_.balances()) {
    const auto speeds = node_->speeds[steps_ % 2];
    result.reports.assign(speeds.begin(), speeds.end());
  }
}

StepResult Stepper::step(int64_t step, double learning_rate, GrainSource& source, int64_t vote) {
  const Seconds before = std::exchange(began_, now());
  const Seconds last = before.value > 0 ? began_ - before : Seconds{};
  node_->reports[steps_ % 2][static_cast<size_t>(team_.rank())] = {vote, last};
  const auto update = [this](size_t i, const float* sum, const optim::StepContext& context) {
    updater_->update(i, sum, context);
  };
  if (tail_) begin_tail(step, learning_rate);
  const StepResult result = exchange_ ? step_between_hosts(step, learning_rate, source)
                                      : step_on_host(step, learning_rate, source, update);
  if (tail_ && result.finite) {
    tail_->update(updater_->context(step, learning_rate));
    if (tail_->meets_after_update()) meet();
  }
  ++steps_;
  if (result.finite || options_.exchange.remote != nullptr) ++versions_;
  return result;
}

StepResult Stepper::gradient(int64_t step, GrainSource& source, std::span<float> gradient) {
  check(team_.size() == 1, "a gradient without an update is one worker's");
  const std::vector<Chunk>& chunks = updater_->chunks();
  const StepResult result = step_on_host(
      step, 0, source, [&](size_t i, const float* sum, const optim::StepContext& /*context*/) {
        std::copy_n(sum, chunks[i].end - chunks[i].begin, gradient.data() + chunks[i].begin);
      });
  ++steps_;
  return result;
}

StepResult Stepper::step_between_hosts(int64_t step, double learning_rate, GrainSource& source) {
  StepResult result;
  const Seconds begin = now();
  exchange_->begin(step, learning_rate, division_);
  crew_.run([&](int lane) { run_grains(lane, step, source); });
  if (tail_) tail_->finish();
  result.computing = now() - begin;
  for (const auto& state : lane_states_) result.waiting += state->waited;
  result.waiting.value /= lanes();
  if (options_.balances()) {
    node_->speeds[steps_ % 2][static_cast<size_t>(team_.rank())] = own_report(step);
    exchange_->swap_speeds();
  }
  exchange_->await_results();
  add_up(result);
  if (result.finite && updater_->measures()) {
    result.gradient_norm = exchange_->await_norm();
    result.finite = std::isfinite(result.gradient_norm);
  }
  Seconds longest;
  for (const Report& r : node_->reports[steps_ % 2]) longest = std::max(longest, r.last_step);
  exchange_->end(result.finite || options_.exchange.remote != nullptr, longest);
  if (!options_.exchange.overlap) {
    const Seconds before = now();
    exchange_->settle();
    result.waiting += now() - before;
    for (int lane = 0; options_.trace != nullptr && lane < lanes(); ++lane) {
      options_.trace->add(lane, Trace::Kind::wait, "exchange", before, now());
    }
  }
  return result;
}

StepResult Stepper::step_on_host(int64_t step, double learning_rate, GrainSource& source,
                                 const UpdateChunk& update) {
  StepResult result;
  const Seconds begin = now();
  optim::StepContext context;

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
  const auto together = [&] {
    ++stage;
    if (stage == 1) {
      if (tail_) tail_->finish();
      result.computing = now() - begin;
      if (options_.balances()) {
        node_->speeds[steps_ % 2][static_cast<size_t>(team_.rank())] = own_report(step);
      }
    }
    meet();
    if (stage == 1) {
      trace_waits(now());
      add_up(result);
      if (result.finite && !updater_->measures()) context = updater_->context(step, learning_rate);
    } else if (stage == 2 && updater_->measures()) {
      context = updater_->context(step, learning_rate);
      result.gradient_norm = updater_->gradient_norm();
      result.finite = std::isfinite(result.gradient_norm);
    }
  };
  const auto any_error = [&] {
    return std::any_of(errors.begin(), errors.end(), [](const auto& e) { return e != nullptr; });
  };
  const auto between = [&]() noexcept {
    failed = any_error();
    if (failed) return;
    guarded(errors.size() - 1, together);
    failed = any_error();
  };
  std::barrier barrier(lanes(), between);

  crew_.run([&](int lane) {
    const auto own = static_cast<size_t>(lane);
    guarded(own, [&] { run_grains(lane, step, source); });
    barrier.arrive_and_wait();
    if (failed || !result.finite) return;
    if (updater_->measures()) {
      guarded(own, [&] {
        each_of_strip(lane, [&](size_t i, const float* sum) { updater_->measure(i, sum); });
      });
      barrier.arrive_and_wait();
      if (failed || !result.finite) return;
    }
    guarded(own, [&] {
      each_of_strip(lane, [&](size_t i, const float* sum) { update(i, sum, context); });
    });
    barrier.arrive_and_wait();
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
  struct Evaluated {
    engine::GrainResult result;
    int64_t samples = 0;
  };
  settle();
  collect_tail(false);
  // In proportion to the shares of a batch, which follow the workers' speeds.
  std::vector<GrainRange> parts;
  int64_t most = 0;
  for (const GrainRange& range : division_->ranges) {
    parts.push_back({grains * range.first / grains_, grains * range.last / grains_});
    most = std::max(most, parts.back().size());
  }
  const GrainRange mine = parts[static_cast<size_t>(team_.rank())];
  std::vector<Evaluated> own(static_cast<size_t>(most));
  std::atomic<int64_t> next{mine.first};
  crew_.run([&](int lane) {
    LaneState& state = *lane_states_[static_cast<size_t>(lane)];
    if (state.inputs.empty()) {
      state.inputs = AlignedBuffer::of_floats(static_cast<int64_t>(grain * values));
      state.labels.resize(grain);
      state.output.resize(grain * classes);
    }
    for (int64_t g = next.fetch_add(1); g < mine.last; g = next.fetch_add(1)) {
      const int64_t real = fill(g, state.inputs.floats().first(grain * values), state.labels);
      engine::GrainRun run;
      run.input = state.inputs.floats().data();
      run.labels = state.labels.data();
      run.training = false;
      own[static_cast<size_t>(g - mine.first)] = {state.lane->run(run), real};
      if (output) {
        state.lane->output(state.output);
        output(g, std::span<const float>(state.output).first(static_cast<size_t>(real) * classes));
      }
    }
  });
  std::vector<Evaluated> all(static_cast<size_t>(grains));
  const auto gathered = team_.gather(std::as_bytes(std::span(own)), "evaluating");
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].size() == 0) continue;
    std::memcpy(&all[static_cast<size_t>(parts[rank].first)], gathered[rank].data(),
                static_cast<size_t>(parts[rank].size()) * sizeof(Evaluated));
  }
  EvalResult total;
  int64_t correct = 0;
  for (const Evaluated& e : all) {  // in one order, whoever evaluated what
    total.loss += e.result.loss;
    correct += e.result.correct;
    total.samples += e.samples;
  }
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
