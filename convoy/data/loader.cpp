#include "convoy/data/loader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/data/prepared_grains.hpp"

namespace convoy::data {
namespace {

void check_batch(const LoaderOptions& options) {
  check(options.grain > 0 && options.batch > 0 && options.batch % options.grain == 0,
        "the grain divides the batch");
}

LoaderOptions checked(LoaderOptions options) {
  check_batch(options);
  check(options.threads > 0, "a loader has at least one thread");
  return options;
}

GrainRange wanted(const LoaderOptions& options) {
  return options.grains.value_or(GrainRange{.first = 0, .last = options.batch / options.grain});
}

int batches_ahead(const LoaderOptions& options) {
  return std::max(options.ahead, 1);
}

Bytes inputs_of_slot(const LoaderOptions& options, model::Shape shape) {
  return {options.grain * shape.size() * static_cast<int64_t>(sizeof(float))};
}

// Lanes own the cores; a loader thread should only fill the gaps, so it asks for less than they do.
void give_way() {
  constexpr int kNiceness = 5;
  const auto self = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, self, std::min(::getpriority(PRIO_PROCESS, self) + kNiceness, 19));
}

/// Prepares one sample. If it is damaged: notes it and returns false where such are left out, else
/// throws InputError with its name.
bool prepare_or_note(const Source& source, const Dataset& set, Preparer& preparer,
                     const Stored& stored, StreamSample which, uint64_t seed,
                     std::span<float> out) {
  try {
    set.verify(which.sample, stored.bytes);
    preparer.prepare(stored, which, seed, out);
    return true;
  } catch (const InputError& problem) {
    const std::string name = set.name(which.sample);
    const std::string text = problem.what();
    if (source.bad != nullptr) {
      source.bad->add(name, text);
      return false;
    }
    refuse("{}; data.bad: skip would leave it out",
           text.starts_with(name) ? text : fmt::format("{}: {}", name, text));
  }
}

}  // namespace

/// The threads, and the grains that they prepare.
struct TrainLoader::Crew {
  using Claim = PreparedGrains::Claim;

  Crew(const Source& from, const LoaderOptions& given)
      : source(from),
        options(checked(given)),
        grains({.grains = options.batch / options.grain,
                .first_step = options.first_step,
                .range = wanted(options),
                .ahead = batches_ahead(options),
                .lanes = std::max(options.lanes, 1),
                .announced = options.feed != nullptr && options.feed->is_announced()}) {
    if (options.augment != nullptr) augment = *options.augment;
    try {
      for (int i = 0; i < options.threads; ++i) add_thread();
    } catch (const std::system_error& problem) {
      stop();
      fail("cannot start {} loader threads: {}", options.threads, problem.what());
    }
  }

  void add_thread() {
    threads.emplace_back([this] { run(); });
  }

  ~Crew() { stop(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopped.store(true, std::memory_order_relaxed);
    }
    work.notify_all();
    // What the threads wait for there may need workers that have stopped, too.
    if (options.feed != nullptr) options.feed->stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  // ---- loader threads ----

  void run() {
    give_way();
    try {
      Preparer preparer(source, source.train->shape(), augment ? &*augment : nullptr);
      while (std::optional<Claim> claim = wait_for_work()) {
        if (claim->slot == nullptr) claim->slot = make_slot();
        if (!fill(*claim->slot, claim->place, preparer)) return;
        {
          const std::lock_guard lock(mutex);
          grains.filled(std::move(*claim));
        }
        ready.notify_all();
        work.notify_all();  // its slot may be free again
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stopped.store(true, std::memory_order_relaxed);
      }
      work.notify_all();
      ready.notify_all();
    }
  }

  // None if the loader was stopped.
  std::optional<Claim> wait_for_work() {
    std::optional<Claim> claim;
    std::unique_lock lock(mutex);
    work.wait(lock, [&] {
      return stopped.load(std::memory_order_relaxed) || (claim = grains.claim()).has_value();
    });
    return claim;
  }

  std::unique_ptr<GrainSlot> make_slot() const {
    auto slot = std::make_unique<GrainSlot>();
    slot->inputs = AlignedBuffer(inputs_of_slot(options, source.train->shape()));
    slot->labels.resize(static_cast<size_t>(options.grain));
    return slot;
  }

  // In the stream.
  int64_t first_position(GrainPlace place) const {
    return place.step * options.batch + place.grain * options.grain;
  }

  // False if the loader was stopped meanwhile: a grain of large images takes a while.
  bool fill(GrainSlot& slot, GrainPlace place, Preparer& preparer) {
    const Dataset& set = *source.train;
    const auto size = static_cast<size_t>(set.shape().size());
    const int64_t first = first_position(place);
    std::vector<Stored> fed;
    if (options.feed != nullptr) {
      fed = options.feed->take(place.step, place.grain);
    } else {
      will_need({.step = place.step + batches_ahead(options) + 1, .grain = place.grain});
    }
    std::vector<int64_t> bad;
    for (int64_t k = 0; k < options.grain; ++k) {
      if (stopped.load(std::memory_order_relaxed)) {
        if (options.feed != nullptr) options.feed->release(place.step, place.grain);
        return false;
      }
      const StreamSample which = stream_at(first + k, set.size(), options.seed);
      const Stored stored = fed.empty() ? set.sample(which.sample) : fed[static_cast<size_t>(k)];
      slot.labels[static_cast<size_t>(k)] = stored.label;
      const std::span<float> out =
          slot.inputs.floats().subspan(static_cast<size_t>(k) * size, size);
      if (!prepare_or_note(source, set, preparer, stored, which, options.seed, out)) {
        bad.push_back(k);
      }
    }
    if (options.feed != nullptr) options.feed->release(place.step, place.grain);
    for (const int64_t k : bad) replace(slot, k, bad, static_cast<int64_t>(size));
    return true;
  }

  void will_need(GrainPlace place) const {
    const int64_t first = first_position(place);
    for (int64_t k = 0; k < options.grain; ++k) {
      source.train->will_need(stream_at(first + k, source.train->size(), options.seed).sample);
    }
  }

  // Sample k of a grain by the nearest good one before it, else behind it.
  void replace(GrainSlot& slot, int64_t k, const std::vector<int64_t>& bad, int64_t size) const {
    const auto is_bad = [&](int64_t i) { return std::ranges::binary_search(bad, i); };
    int64_t from = k - 1;
    while (from >= 0 && is_bad(from)) --from;
    if (from < 0) {
      from = k + 1;
      while (from < options.grain && is_bad(from)) ++from;
    }
    if (from == options.grain) refuse("all {} samples of a grain are damaged", options.grain);
    float* const inputs = slot.inputs.floats().data();
    std::copy_n(inputs + from * size, size, inputs + k * size);
    slot.labels[static_cast<size_t>(k)] = slot.labels[static_cast<size_t>(from)];
  }

  // ---- lanes ----

  const GrainSlot& get(GrainPlace place) {
    std::unique_lock lock(mutex);
    const GrainSlot* slot = grains.get(place);
    if (slot != nullptr) return *slot;
    const Seconds start = now();
    ready.wait_for(lock, std::chrono::duration<double>(options.deadline.value), [&] {
      slot = grains.get(place);
      return slot != nullptr || error;
    });
    waited += now() - start;
    if (slot != nullptr) return *slot;
    if (error) std::rethrow_exception(error);
    const std::optional<GrainPlace> other = grains.what_holds_up(place);
    fail("the data loader has not delivered grain {} of step {} within {}{}", place.grain,
         place.step, to_string(options.deadline),
         other ? fmt::format(": grain {} of step {} was not released", other->grain, other->step)
               : "");
  }

  void release(GrainPlace place) {
    {
      const std::lock_guard lock(mutex);
      grains.release(place);
    }
    work.notify_all();
  }

  void set_grains(int64_t step, GrainRange range) {
    {
      const std::lock_guard lock(mutex);
      grains.set_range(step, range);
    }
    work.notify_all();
  }

  const Source source;
  const LoaderOptions options;
  std::optional<job::Augment> augment;

  std::atomic<bool> stopped{false};  // changed under the mutex
  std::mutex mutex;
  std::condition_variable work;   // there may be something to claim
  std::condition_variable ready;  // a grain is
  PreparedGrains grains;
  Seconds waited;
  std::exception_ptr error;
  std::vector<std::thread> threads;
};

TrainLoader::TrainLoader(const Source& source, const LoaderOptions& options)
    : crew_(std::make_unique<Crew>(source, options)) {}

TrainLoader::~TrainLoader() = default;

void TrainLoader::set_grains(int64_t step, GrainRange grains) {
  crew_->set_grains(step, grains);
}

Grain TrainLoader::get(int64_t step, int64_t grain) {
  const GrainSlot& slot = crew_->get({.step = step, .grain = grain});
  return {.inputs = slot.inputs.floats(), .labels = slot.labels, .count = crew_->options.grain};
}

void TrainLoader::release(int64_t step, int64_t grain) {
  crew_->release({.step = step, .grain = grain});
}

Seconds TrainLoader::waited() const {
  const std::lock_guard lock(crew_->mutex);
  return crew_->waited;
}

void TrainLoader::add_thread() {
  crew_->add_thread();
}

int TrainLoader::threads() const {
  return static_cast<int>(crew_->threads.size());
}

Bytes TrainLoader::memory(const LoaderOptions& options, model::Shape shape) {
  check_batch(options);
  const Bytes slot =
      AlignedBuffer::taken(inputs_of_slot(options, shape)) + options.grain * Bytes{sizeof(int32_t)};
  return (batches_ahead(options) + 1) * wanted(options).size() * slot;
}

Seconds measure_preparation(const Source& source, const LoaderOptions& options) {
  constexpr int64_t kSamples = 16;
  constexpr Seconds kLongEnough{0.05};  // a quota of a core shows only after some time
  const Dataset& set = *source.train;
  Preparer preparer(source, set.shape(), options.augment);
  std::vector<float> out(static_cast<size_t>(set.shape().size()));
  Seconds begin = now();
  int64_t i = 0;
  // The first one also makes room for all others.
  for (; i <= kSamples || now() - begin < kLongEnough; ++i) {
    if (i == 1) begin = now();
    const StreamSample which = stream_at(i, set.size(), options.seed);
    prepare_or_note(source, set, preparer, set.sample(which.sample), which, options.seed, out);
  }
  return {(now() - begin).value / static_cast<double>(i - 1)};
}

int64_t eval_grain(const Source& source, const Dataset& set, int64_t index, int64_t grain,
                   std::span<float> inputs, std::span<int32_t> labels) {
  const auto size = static_cast<size_t>(set.shape().size());
  check(inputs.size() == static_cast<size_t>(grain) * size &&
            labels.size() == static_cast<size_t>(grain),
        "an evaluation grain is written to room of its size");
  Preparer preparer(source, set.shape(), nullptr);
  const int64_t first = index * grain;
  const int64_t last = std::min(set.size(), first + grain);
  int64_t count = 0;
  for (int64_t i = first; i < last; ++i) {
    const Stored stored = set.sample(i);
    if (!prepare_or_note(source, set, preparer, stored, {.sample = i, .epoch = 0}, 0,
                         inputs.subspan(static_cast<size_t>(count) * size, size))) {
      continue;
    }
    labels[static_cast<size_t>(count)] = stored.label;
    ++count;
  }
  std::fill(inputs.begin() + count * static_cast<int64_t>(size), inputs.end(), 0.0F);
  std::fill(labels.begin() + count, labels.end(), -1);
  return count;
}

}  // namespace convoy::data
