#include "app/data_shuffle.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/alltoall.hpp"
#include "convoy/data/store.hpp"
#include "convoy/plan/measurements.hpp"

namespace convoy::app {
namespace {

/// Messages on their way at once in each direction: one moves while the next is made ready.
constexpr size_t kWindow = 2;
constexpr int kTag = 1000;
constexpr int64_t kFewestShuffles = 3;
constexpr int64_t kMostShuffles = 1000;

/// A shuffle moves 1 − 1/ranks of all records; each pair shall need several segments.
Bytes fitting_segment(Bytes held, int ranks) {
  constexpr int64_t kSegments = 4;
  const int64_t pair = held.value / (int64_t{ranks} * ranks);
  const auto message =
      std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(pair / kSegments, 1)));
  return std::min(Bytes{2 * static_cast<int64_t>(message)}, data::StoreOptions{}.segment);
}

/// As many bytes as a shuffle moves, between the same ranks and in the same order, but no records:
/// what MPI alone takes.
class PlainMessages {
 public:
  PlainMessages(comm::Communicator& c, int64_t message)
      : c_(c), message_(static_cast<size_t>(message)), out_(message_), in_(kWindow * message_) {}

  /// `bytes` to each other rank and from it.
  comm::Task exchange(int64_t bytes) {
    const int n = c_.size();
    for (int round = 1; round < n; ++round) {
      const int to = (c_.rank() + round) % n;
      const int from = (c_.rank() - round + n) % n;
      for (auto left = static_cast<size_t>(bytes); left > 0;) {
        comm::Requests both;
        for (size_t w = 0; w < kWindow && left > 0; ++w) {
          const size_t size = std::min(left, message_);
          both.add(c_.receive(from, kTag, std::span(in_).subspan(w * message_, size)));
          both.add(c_.send(to, kTag, std::span(out_).first(size)));
          left -= size;
        }
        co_await std::move(both);
      }
    }
  }

 private:
  comm::Communicator& c_;
  size_t message_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

/// What a worker has to say about a turn.
struct Turn {
  double shuffle = 0;  // seconds
  double mpi = 0;
  int64_t moved = 0;  // bytes that came to this worker
};

/// The slowest worker's times, and the bytes of all.
Turn of_all(const sync::Team& team, const Turn& own) {
  Turn all;
  for (const std::vector<std::byte>& bytes :
       team.gather(std::as_bytes(std::span(&own, 1)), "the times of a shuffle")) {
    Turn one;
    std::memcpy(&one, bytes.data(), sizeof one);
    all.shuffle = std::max(all.shuffle, one.shuffle);
    all.mpi = std::max(all.mpi, one.mpi);
    all.moved += one.moved;
  }
  return all;
}

data::StoreOptions store_options(const data::Source& source, const sync::Team& team,
                                 const ShuffleOptions& options) {
  const int64_t ranks = team.size();
  data::StoreOptions storing;
  // A batch is an epoch, and each worker has one grain of it: so records change hands before every
  // step, and then everything that a step needs is at home.
  storing.grain = source.train->size() / ranks;
  storing.batch = storing.samples = storing.grain * ranks;
  for (int64_t r = 0; r < ranks; ++r) storing.ranges.push_back({r, r + 1});
  storing.shuffle_epochs = 1;
  storing.ahead = 1;
  storing.threads = options.threads;
  storing.deadline = team.deadline();
  storing.load_deadline = team.patience();
  const int64_t first = source.packed.first;
  const Bytes held{source.packed.file->length(first, first + storing.samples)};
  storing.segment =
      options.segment.value > 0 ? options.segment : fitting_segment(held, team.size());
  return storing;
}

/// The shuffle before `step`, which begins when all have released the step before it.
Turn shuffle_once(data::Store& store, const sync::Team& team, int64_t step) {
  const data::StoreCounters before = store.counters();
  team.meet("the next shuffle");
  store.release(step - 1, team.rank());
  store.take(step, team.rank());
  const data::StoreCounters after = store.counters();
  return {.shuffle = (after.shuffling - before.shuffling).value,
          .mpi = 0,
          .moved = (after.moved - before.moved).value};
}

}  // namespace

ShuffleSpeed measure_shuffle(const data::Source& source, const sync::Team& team,
                             const ShuffleOptions& options) {
  if (source.train->size() < team.size()) {
    refuse("{} for {}: there must be one for each at least",
           plural(source.train->size(), "training image"), plural(team.size(), "worker"));
  }
  const data::StoreOptions storing = store_options(source, team, options);
  data::Store store(source.packed.file, source.packed.first, team.world(), storing);
  ShuffleSpeed speed;
  speed.images = storing.samples;
  const int64_t first = source.packed.first;
  speed.held = {source.packed.file->length(first, first + storing.samples)};
  speed.segment = {comm::segment_bytes(storing.segment)};
  PlainMessages plain(*team.world(), speed.segment.value);

  const int64_t ranks = team.size();
  std::vector<double> rates;
  std::vector<double> mpi_rates;
  std::vector<double> ratios;
  double spent = 0;
  store.take(0, team.rank());
  for (int64_t step = 1;
       step <= kMostShuffles && (speed.shuffles < kFewestShuffles || spent < options.budget.value);
       ++step) {
    Turn turn = shuffle_once(store, team, step);
    const int64_t to_each = of_all(team, turn).moved / (ranks * (ranks - 1));
    const Seconds begin = now();
    comm::wait(plain.exchange(to_each), team.deadline(), "messages of MPI alone");
    turn.mpi = (now() - begin).value;
    const Turn all = of_all(team, turn);
    spent += all.shuffle + all.mpi;
    if (to_each == 0) continue;
    const double each = static_cast<double>(all.moved) / static_cast<double>(ranks);
    rates.push_back(each / all.shuffle);
    mpi_rates.push_back(each / all.mpi);
    ratios.push_back(all.mpi / all.shuffle);
    speed.moved += Bytes{all.moved};
    ++speed.shuffles;
  }
  store.finish();
  if (ratios.empty()) {
    refuse("{} for {}: too few, no record changed hands", plural(speed.images, "training image"),
           plural(team.size(), "worker"));
  }
  speed.moved.value /= speed.shuffles;
  speed.per_second = plan::median(rates);
  speed.mpi_per_second = plan::median(mpi_rates);
  speed.ratio = plan::median(ratios);
  speed.least_ratio = *std::ranges::min_element(ratios);
  speed.largest_ratio = *std::ranges::max_element(ratios);
  return speed;
}

}  // namespace convoy::app
