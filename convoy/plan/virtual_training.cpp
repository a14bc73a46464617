#include "convoy/plan/virtual_training.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "convoy/base/error.hpp"
#include "convoy/base/random.hpp"
#include "convoy/data/loader.hpp"
#include "convoy/optim/asynchrony.hpp"
#include "convoy/plan/event_queue.hpp"
#include "convoy/plan/loader_source.hpp"
#include "convoy/plan/step_model.hpp"
#include "convoy/sync/updater.hpp"

namespace convoy::plan {
namespace {

constexpr double kVaried = 0.1;

/// Of mean 1, the same for the same group and turn.
double factor(Turns turns, uint64_t seed, int group, int64_t turn) {
  switch (turns) {
    case Turns::steady:
      return 1;
    case Turns::varied:
      return random_factor(kVaried, seed, group, turn);
    case Turns::memoryless:
      break;
  }
  Stream random(seed, Purpose::synthetic, static_cast<uint64_t>(turn),
                static_cast<uint64_t>(group));
  return -std::log1p(-static_cast<double>(random.uniform()));
}

/// What servers apply: as it is set, or by the loop that they close (sync::ShardLines), over some
/// chunks of what they own. All of it is updated at once here, so one meter sees all the chunks.
class AppliedMomentum {
 public:
  /// `first`: floats before it are not the servers'.
  AppliedMomentum(const VirtualSetting& setting, const sync::Updater& updater, int64_t first,
                  std::span<const float> weights)
      : loop_(setting.momentum, setting.measured
                                    ? optim::explicit_momentum(setting.momentum, setting.groups)
                                    : setting.momentum) {
    if (!setting.measured) return;
    watch(updater, first);
    // Gradients older than that are rare where groups are about as fast as each other.
    const int history = std::max(kHistory, 4 * setting.groups);
    meter_.emplace(sample(weights).size(), history);
    meter_->moved(sample_);
  }

  double now() const { return loop_.applied(); }

  /// After an update by a gradient of weights that were `age` updates old.
  void updated(std::span<const float> weights, std::span<const float> gradient, int64_t age,
               double learning_rate) {
    if (!meter_) return;
    meter_->moved(sample(weights));
    meter_->arrived(meter_->version() - 1 - age, sample(gradient), learning_rate);
    if (const auto total = meter_->total()) loop_.correct(*total);
  }

 private:
  static constexpr size_t kWatched = 8;
  static constexpr int kHistory = 100;

  void watch(const sync::Updater& updater, int64_t first) {
    std::vector<sync::Chunk> all;
    for (const sync::Chunk& c : updater.chunks()) {
      const bool learned = updater.arena().tensors()[c.tensor].kind == engine::Kind::parameter;
      if (learned && c.begin >= first) all.push_back(c);
    }
    const size_t count = std::min(kWatched, all.size());
    for (size_t i = 0; i < count; ++i) chunks_.push_back(all[i * all.size() / count]);
  }

  std::span<const float> sample(std::span<const float> arena) {
    sample_.clear();
    for (const sync::Chunk& c : chunks_) {
      sample_.insert(sample_.end(), arena.begin() + c.begin, arena.begin() + c.end);
    }
    return sample_;
  }

  optim::MomentumLoop loop_;
  std::vector<sync::Chunk> chunks_;
  std::optional<optim::MomentumMeter> meter_;
  std::vector<float> sample_;
};

}  // namespace

double VirtualRun::mean_loss(Seconds from) const {
  if (diverged) return std::numeric_limits<double>::infinity();
  double sum = 0;
  int64_t count = 0;
  for (const VirtualPoint& p : points) {
    if (p.time < from) continue;
    sum += p.loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::infinity();
}

/// One run: groups, the clock, and the model's updates.
class VirtualTraining::Sitting {
 public:
  Sitting(VirtualTraining& of, const VirtualSetting& setting)
      : of_(of),
        setting_(setting),
        loader_(of.source_, loading(of)),
        samples_(&loader_),
        updater_(of.program_, of.optimizer_, update_options(of), arrays(of)),
        merged_floats_(merged_floats(of, setting)),
        momentum_(setting, updater_, merged_floats_, of.stepper_->weights()) {
    for (int g = 0; g < setting.groups; ++g) {
      Group group;
      group.gradient = AlignedBuffer::of_floats(of.program_.arena().size());
      groups_.push_back(std::move(group));
      const double phase = setting.turn.value * g / setting.groups;
      queue_.at(of.at_.time + Seconds{phase}, [this, g] { begin(g); });
    }
  }

  VirtualRun run(const Stop& stop) {
    while (!queue_.empty() && !result_.diverged) {
      const size_t before = result_.points.size();
      queue_.step();
      if (result_.points.size() > before && stop(result_)) break;
    }
    of_.at_.time = queue_.now();
    result_.applied = momentum_.now();
    return std::move(result_);
  }

 private:
  struct Group {
    AlignedBuffer gradient;
    int64_t version = 0;  // of the model that it was computed from
    int64_t turn = 0;
    double loss = 0;
  };

  static data::LoaderOptions loading(const VirtualTraining& of) {
    data::LoaderOptions o;
    o.batch = of.options_.batch;
    o.grain = of.program_.grain();
    o.seed = of.options_.seed;
    o.first_step = of.at_.batches;
    o.threads = of.options_.threads;
    o.augment = of.options_.augment;
    return o;
  }
  static sync::UpdateOptions update_options(const VirtualTraining& of) {
    sync::UpdateOptions o;
    o.grains = of.options_.batch / of.program_.grain();
    o.decay_all = of.options_.decay_all;
    return o;
  }
  static sync::ModelArrays arrays(VirtualTraining& of) {
    sync::ModelArrays a;
    a.weights = of.stepper_->weights();
    a.states = of.stepper_->states();
    return a;
  }

  /// The first ones of the arena.
  static int64_t merged_floats(const VirtualTraining& of, const VirtualSetting& setting) {
    if (!setting.merged || !of.program_.tail()) return 0;
    return of.program_.tail()->last(setting.merged_layers).floats;
  }

  void begin(int index) {
    Group& group = groups_[static_cast<size_t>(index)];
    const sync::StepResult result =
        of_.stepper_->gradient(of_.at_.batches, samples_, group.gradient.floats());
    group.version = of_.at_.updates;
    group.loss = result.loss;
    ++of_.at_.batches;
    if (!result.finite) {
      result_.diverged = true;
      return;
    }
    if (merged_floats_ > 0) {
      constexpr double kItsOwn = std::numeric_limits<double>::quiet_NaN();
      update(group, kItsOwn, [&](const sync::Chunk& c) { return c.begin < merged_floats_; });
      of_.stepper_->weights_changed();
    }
    const uint64_t seed = of_.options_.seed;
    const double took = setting_.turn.value * factor(setting_.turns, seed, index, group.turn++);
    queue_.after({took}, [this, index] { end(index); });
  }

  void end(int index) {
    Group& group = groups_[static_cast<size_t>(index)];
    const int64_t age = of_.at_.updates - group.version;
    result_.staleness.record(age);
    update(group, momentum_.now(), [&](const sync::Chunk& c) { return c.begin >= merged_floats_; });
    momentum_.updated(of_.stepper_->weights(), group.gradient.floats(), age,
                      setting_.learning_rate);
    of_.stepper_->weights_changed();
    ++of_.at_.updates;
    result_.points.push_back({of_.at_.updates, queue_.now(), group.loss});
    begin(index);
  }

  template <class Which>
  void update(const Group& group, double momentum, const Which& which) {
    optim::StepContext context = updater_.context(of_.at_.updates, setting_.learning_rate);
    context.momentum = momentum;
    for (size_t i = 0; i < updater_.chunks().size(); ++i) {
      const sync::Chunk& chunk = updater_.chunks()[i];
      if (which(chunk)) updater_.update(i, group.gradient.floats().data() + chunk.begin, context);
    }
  }

  VirtualTraining& of_;
  VirtualSetting setting_;
  data::TrainLoader loader_;
  LoaderSource samples_;
  sync::Updater updater_;
  int64_t merged_floats_;
  AppliedMomentum momentum_;
  EventQueue queue_;
  std::vector<Group> groups_;
  VirtualRun result_;
};

VirtualTraining::VirtualTraining(const engine::Program& program, const optim::Optimizer& optimizer,
                                 const data::Source& source, const VirtualOptions& options,
                                 sync::StepperOptions stepping)
    : program_(program), optimizer_(optimizer), source_(source), options_(options) {
  check(!optimizer.needs_norms(), "gradients are applied piece by piece");
  stepping.batch = options.batch;
  stepping.seed = options.seed;
  stepper_ = std::make_unique<sync::Stepper>(program, optimizer, stepping);
  engine::initialise(program.arena(), options.seed, stepper_->weights());
  stepper_->weights_changed();
}

VirtualTraining::~VirtualTraining() = default;

VirtualTraining::State VirtualTraining::keep() const {
  State state = at_;
  const auto weights = stepper_->weights();
  state.weights.assign(weights.begin(), weights.end());
  for (const auto& s : stepper_->states()) state.states.emplace_back(s.begin(), s.end());
  return state;
}

void VirtualTraining::restore(const State& state) {
  std::ranges::copy(state.weights, stepper_->weights().begin());
  const auto states = stepper_->states();
  for (size_t i = 0; i < states.size(); ++i) std::ranges::copy(state.states[i], states[i].begin());
  stepper_->weights_changed();
  at_.batches = state.batches;
  at_.updates = state.updates;
  at_.time = state.time;
}

VirtualRun VirtualTraining::run(const VirtualSetting& setting, const Stop& stop) {
  check(setting.groups >= 1 && setting.turn.value > 0, "groups take turns");
  return Sitting(*this, setting).run(stop);
}

}  // namespace convoy::plan
