#include "convoy/train/feeding.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "convoy/base/text.hpp"

namespace convoy::train {
namespace {

/// Threads of a worker that may prepare samples: as many as its lanes have.
int most_threads(const plan::Plan& plan) {
  return std::max(1, plan.lanes * plan.threads_per_lane);
}

std::vector<data::GrainRange> as_data(const std::vector<sync::GrainRange>& ranges) {
  std::vector<data::GrainRange> all;
  for (const sync::GrainRange& r : ranges) all.push_back({r.first, r.last});
  return all;
}

std::unique_ptr<data::Store> make_store(const Prepared& p, const FeedingOptions& feeding,
                                        const sync::Team& team,
                                        const std::function<void(const std::string&)>& say) {
  if (p.store.copies == 0) return nullptr;
  data::StoreOptions options = store_options(p.job, p.planned.plan, p.source, team);
  options.copies = p.store.copies;
  options.shuffle_epochs = p.store.shuffle_epochs;
  options.first_step = feeding.first_step;
  options.announced = feeding.moving;
  options.threads = most_threads(p.planned.plan);
  options.skip_bad = p.source.bad != nullptr;
  Seconds said = now();
  options.progress = [&](Bytes loaded, Bytes all) {
    constexpr Seconds kEvery{5};
    if (now() - said < kEvery) return;
    said = now();
    say(fmt::format("reading samples: {} of {}", to_string(loaded), to_string(all)));
  };
  return std::make_unique<data::Store>(p.source.packed.file, p.source.packed.first, team.world(),
                                       options);
}

}  // namespace

data::StoreOptions store_options(const job::Job& job, const plan::Plan& plan,
                                 const data::Source& source, const sync::Team& team) {
  data::StoreOptions options;
  options.samples = source.train->size();
  options.batch = plan.batch;
  options.grain = plan.grain;
  options.ranges = as_data(team.ranges(plan.batch / plan.grain, job.sync.shares));
  options.seed = job.train.seed;
  options.deadline = team.deadline();
  options.load_deadline = {60 * team.patience().value};
  return options;
}

Feeding::Feeding(const Prepared& prepared, const FeedingOptions& options, const sync::Team& team,
                 const std::function<void(const std::string&)>& say)
    : p_(prepared),
      worker_(static_cast<size_t>(team.rank())),
      store_(make_store(prepared, options, team, say)),
      source_(nullptr) {
  if (store_) {
    for (const data::BadRecord& bad : store_->bad_records()) {
      p_.source.bad->add(p_.source.train->name(bad.sample), bad.message);
    }
  }
  const data::GrainRange grains = as_data(options.ranges)[worker_];
  if (grains.empty() && !options.moving) return;
  data::LoaderOptions loading;
  loading.batch = options.batch;
  loading.grain = p_.planned.plan.grain;
  loading.grains = grains;
  loading.lanes = p_.planned.plan.lanes;
  loading.seed = p_.job.train.seed;
  loading.first_step = options.first_step;
  loading.augment = &p_.job.data.augment;
  loading.feed = store_.get();
  loading.threads = first_threads(loading);
  // Such a store says nothing about a step before its grains are announced.
  if (lag() > 0) loading.grains = data::GrainRange{};
  loader_.emplace(p_.source, loading);
  source_ = plan::LoaderSource(&*loader_);
}

Feeding::~Feeding() = default;

int Feeding::first_threads(const data::LoaderOptions& loading) const {
  if (p_.job.data.threads > 0) return static_cast<int>(p_.job.data.threads);
  const plan::Plan& plan = p_.planned.plan;
  if (plan.step.value <= 0) return 1;
  const auto share =
      static_cast<double>((loading.grains->last - loading.grains->first) * plan.grain);
  constexpr double kReserve = 1.2;
  const double busy =
      kReserve * share * data::measure_preparation(p_.source, loading).value / plan.step.value;
  return std::clamp(static_cast<int>(std::ceil(busy)), 1, most_threads(plan));
}

void Feeding::announce(int64_t step, const std::vector<sync::GrainRange>& ranges) {
  std::vector<data::GrainRange> all = as_data(ranges);
  const data::GrainRange own = all[worker_];
  if (store_) store_->announce(step, std::move(all));
  loader_->set_grains(step, own);
}

std::string Feeding::after_step(Seconds took) {
  constexpr int64_t kSteps = 8;
  constexpr double kTooLong = 0.005;  // of the lanes' time
  if (!loader_ || p_.job.data.threads > 0 || loader_->threads() >= most_threads(p_.planned.plan)) {
    return "";
  }
  time_ += took;
  if (++steps_ % kSteps != 0) return "";
  const Seconds waited = loader_->waited();
  const double part =
      (waited - waited_).value / std::max(1e-9, time_.value * p_.planned.plan.lanes);
  waited_ = waited;
  time_ = {};
  // The first steps wait for an empty ring to be filled.
  if (steps_ == kSteps || part < kTooLong) return "";
  loader_->add_thread();
  return fmt::format("{} prepare samples from here on: lanes waited {:.1f} % of the time",
                     plural(loader_->threads(), "thread"), 100 * part);
}

void Feeding::finish() {
  loader_.reset();
  if (store_) store_->finish();
}

data::StoreCounters Feeding::counters() const {
  return store_ ? store_->counters() : data::StoreCounters{};
}

}  // namespace convoy::train
