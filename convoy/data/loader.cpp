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

namespace convoy::data {
namespace {

constexpr int64_t kLine = 16;  // floats of a cache line

/// Those wanted here.
int64_t grains_per_batch(const LoaderOptions& options) {
  return options.last_grain - options.first_grain;
}

int64_t slot_count(const LoaderOptions& options) {
  return (std::max(options.ahead, 1) + 1) * grains_per_batch(options);
}

int64_t slot_floats(const LoaderOptions& options, model::Shape shape) {
  return (options.grain * shape.size() + kLine - 1) / kLine * kLine;
}

LoaderOptions checked(LoaderOptions options) {
  check(options.grain > 0 && options.batch > 0 && options.batch % options.grain == 0,
        "the grain divides the batch");
  check(options.threads > 0, "a loader has at least one thread");
  if (options.last_grain == 0) options.last_grain = options.batch / options.grain;
  check(options.first_grain >= 0 && options.first_grain < options.last_grain &&
            options.last_grain <= options.batch / options.grain,
        "a loader prepares grains of the batch");
  return options;
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

// Grains are numbered n = 0, 1, 2, … from the first step on; grain n lives in slot n mod S. The
// slot's turn tells whose it is:
//   turn = n      free, to be filled with grain n
//   turn = n + 1  grain n is ready (S ≥ 2, so this is never another grain's "free")
//   turn = n + S  released: free for grain n + S
// Turns are changed by release stores, so whoever sees one sees the slot's content. The mutex only
// guards sleeping and waking: a turn is stored first, then the mutex is passed through, so that
// nobody can look at the turn, find it old and fall asleep after the notification.
struct TrainLoader::Ring {
  struct Slot {
    std::atomic<int64_t> turn{0};
    float* inputs = nullptr;
    std::span<int32_t> labels;
  };

  Ring(const Source& from, const LoaderOptions& given)
      : source(from),
        options(checked(given)),
        grains(grains_per_batch(options)),
        inputs(AlignedBuffer::of_floats(slot_count(options) *
                                        slot_floats(options, from.train->shape()))),
        labels(static_cast<size_t>(slot_count(options) * options.grain)),
        slots(static_cast<size_t>(slot_count(options))) {
    if (options.augment != nullptr) augment = *options.augment;
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto grain = static_cast<size_t>(options.grain);
      slots[i].turn.store(static_cast<int64_t>(i), std::memory_order_relaxed);
      slots[i].inputs = inputs.floats().data() +
                        static_cast<int64_t>(i) * slot_floats(options, source.train->shape());
      slots[i].labels = std::span(labels).subspan(i * grain, grain);
    }
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

  ~Ring() { stop(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopped.store(true, std::memory_order_relaxed);
    }
    freed.notify_all();
    // What the threads wait for there may need workers that have stopped, too.
    if (options.feed != nullptr) options.feed->stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  int64_t number(int64_t step, int64_t grain) const {
    check(step >= options.first_step && grain >= options.first_grain && grain < options.last_grain,
          "a lane asks for a grain of the stream");
    return (step - options.first_step) * grains + (grain - options.first_grain);
  }

  Slot& slot_of(int64_t n) { return slots[static_cast<size_t>(n) % slots.size()]; }

  void set_turn(Slot& slot, int64_t turn, std::condition_variable& waiters) {
    slot.turn.store(turn, std::memory_order_release);
    { const std::lock_guard lock(mutex); }
    waiters.notify_all();
  }

  // ---- loader threads ----

  void run() {
    give_way();
    try {
      Preparer preparer(source, source.train->shape(), augment ? &*augment : nullptr);
      for (;;) {
        const int64_t n = next.fetch_add(1, std::memory_order_relaxed);
        Slot& slot = slot_of(n);
        if (!wait_until_free(slot, n) || !fill(slot, n, preparer)) return;
        set_turn(slot, n + 1, ready);
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stopped.store(true, std::memory_order_relaxed);
      }
      freed.notify_all();
      ready.notify_all();
    }
  }

  bool wait_until_free(const Slot& slot, int64_t n) {
    const auto free = [&] { return slot.turn.load(std::memory_order_acquire) == n; };
    if (!free()) {
      std::unique_lock lock(mutex);
      freed.wait(lock, [&] { return stopped.load(std::memory_order_relaxed) || free(); });
    }
    return !stopped.load(std::memory_order_relaxed);
  }

  // In the stream, of grain n.
  int64_t first_position(int64_t n) const {
    return (options.first_step + n / grains) * options.batch +
           (options.first_grain + n % grains) * options.grain;
  }

  // False if the loader was stopped meanwhile: a grain of large images takes a while.
  bool fill(const Slot& slot, int64_t n, Preparer& preparer) {
    const Dataset& set = *source.train;
    const auto size = static_cast<size_t>(set.shape().size());
    const int64_t step = options.first_step + n / grains;
    const int64_t grain = options.first_grain + n % grains;
    const int64_t first = first_position(n);
    std::vector<Stored> fed;
    if (options.feed != nullptr) {
      fed = options.feed->take(step, grain);
    } else {
      will_need(n + static_cast<int64_t>(slots.size()));
    }
    std::vector<int64_t> bad;
    for (int64_t k = 0; k < options.grain; ++k) {
      if (stopped.load(std::memory_order_relaxed)) return false;
      const StreamSample which = stream_at(first + k, set.size(), options.seed);
      const Stored stored = fed.empty() ? set.sample(which.sample) : fed[static_cast<size_t>(k)];
      slot.labels[static_cast<size_t>(k)] = stored.label;
      const std::span<float> out{slot.inputs + static_cast<size_t>(k) * size, size};
      if (!prepare_or_note(source, set, preparer, stored, which, options.seed, out)) {
        bad.push_back(k);
      }
    }
    if (options.feed != nullptr) options.feed->release(step, grain);
    for (const int64_t k : bad) replace(slot, k, bad, static_cast<int64_t>(size));
    return true;
  }

  void will_need(int64_t n) const {
    const int64_t first = first_position(n);
    for (int64_t k = 0; k < options.grain; ++k) {
      source.train->will_need(stream_at(first + k, source.train->size(), options.seed).sample);
    }
  }

  // Sample k of a grain by the nearest good one before it, else behind it.
  void replace(const Slot& slot, int64_t k, const std::vector<int64_t>& bad, int64_t size) const {
    const auto is_bad = [&](int64_t i) { return std::ranges::binary_search(bad, i); };
    int64_t from = k - 1;
    while (from >= 0 && is_bad(from)) --from;
    if (from < 0) {
      from = k + 1;
      while (from < options.grain && is_bad(from)) ++from;
    }
    if (from == options.grain) refuse("all {} samples of a grain are damaged", options.grain);
    std::copy_n(slot.inputs + from * size, size, slot.inputs + k * size);
    slot.labels[static_cast<size_t>(k)] = slot.labels[static_cast<size_t>(from)];
  }

  // ---- lanes ----

  void wait_until_ready(const Slot& slot, int64_t n) {
    const auto is_ready = [&] { return slot.turn.load(std::memory_order_acquire) > n; };
    const Seconds start = now();
    std::unique_lock lock(mutex);
    ready.wait_for(lock, std::chrono::duration<double>(options.deadline.value),
                   [&] { return is_ready() || error; });
    waited_ns.fetch_add(static_cast<int64_t>((now() - start).value * 1e9),
                        std::memory_order_relaxed);
    if (is_ready()) return;
    if (error) std::rethrow_exception(error);
    const int64_t holder = n - static_cast<int64_t>(slots.size());
    const bool held = slot.turn.load(std::memory_order_acquire) == holder + 1;
    fail("the data loader has not delivered grain {} of step {} within {}{}",
         options.first_grain + n % grains, options.first_step + n / grains,
         to_string(options.deadline),
         held ? fmt::format(": its slot still holds grain {} of step {}, which was not released",
                            options.first_grain + holder % grains,
                            options.first_step + holder / grains)
              : "");
  }

  const Source source;
  const LoaderOptions options;
  std::optional<job::Augment> augment;
  const int64_t grains;  // per batch
  AlignedBuffer inputs;
  std::vector<int32_t> labels;
  std::vector<Slot> slots;

  std::atomic<int64_t> next{0};
  std::atomic<int64_t> waited_ns{0};
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  std::condition_variable freed;
  std::condition_variable ready;
  std::exception_ptr error;
  std::vector<std::thread> threads;
};

TrainLoader::TrainLoader(const Source& source, const LoaderOptions& options)
    : ring_(std::make_unique<Ring>(source, options)) {}

TrainLoader::~TrainLoader() = default;

Grain TrainLoader::get(int64_t step, int64_t grain) {
  const int64_t n = ring_->number(step, grain);
  Ring::Slot& slot = ring_->slot_of(n);
  if (slot.turn.load(std::memory_order_acquire) <= n) ring_->wait_until_ready(slot, n);
  check(slot.turn.load(std::memory_order_acquire) == n + 1, "a grain is got before its release");
  const auto size = static_cast<size_t>(ring_->options.grain * ring_->source.train->shape().size());
  return {.inputs = {slot.inputs, size}, .labels = slot.labels, .count = ring_->options.grain};
}

void TrainLoader::release(int64_t step, int64_t grain) {
  const int64_t n = ring_->number(step, grain);
  Ring::Slot& slot = ring_->slot_of(n);
  check(slot.turn.load(std::memory_order_relaxed) == n + 1, "a grain is got once, released once");
  ring_->set_turn(slot, n + static_cast<int64_t>(ring_->slots.size()), ring_->freed);
}

Seconds TrainLoader::waited() const {
  return {static_cast<double>(ring_->waited_ns.load(std::memory_order_relaxed)) * 1e-9};
}

void TrainLoader::add_thread() {
  ring_->add_thread();
}

int TrainLoader::threads() const {
  return static_cast<int>(ring_->threads.size());
}

Bytes TrainLoader::memory(const LoaderOptions& given, model::Shape shape) {
  const LoaderOptions options = checked(given);
  const auto slot = slot_floats(options, shape) * static_cast<int64_t>(sizeof(float)) +
                    options.grain * static_cast<int64_t>(sizeof(int32_t));
  return {slot_count(options) * slot};
}

Seconds measure_preparation(const Source& source, const LoaderOptions& options) {
  constexpr int64_t kSamples = 16;
  const Dataset& set = *source.train;
  Preparer preparer(source, set.shape(), options.augment);
  std::vector<float> out(static_cast<size_t>(set.shape().size()));
  Seconds begin = now();
  // The first one also makes room for all others.
  for (int64_t i = 0; i <= kSamples; ++i) {
    if (i == 1) begin = now();
    const StreamSample which = stream_at(i, set.size(), options.seed);
    prepare_or_note(source, set, preparer, set.sample(which.sample), which, options.seed, out);
  }
  return {(now() - begin).value / kSamples};
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
