#pragma once
// The distributed in-memory store: the workers of a job hold the training split of a packed file
// together, and each record comes to the worker that trains on it, in time. docs/store.md shows
// how.
//
//     Store store(file, train.first, &session.world(), {.copies = 1, .samples = train.count, …});
//     TrainLoader loader(…, store, …);     // takes and releases grains
//     …
//     store.finish();                      // all workers together, after the loader has ended
//
// Which sample stands where in the training stream does not depend on any of this; so neither do
// the bits of the result.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/data/feed.hpp"
#include "convoy/data/holders.hpp"
#include "convoy/data/packed.hpp"
#include "convoy/data/record_exchange.hpp"
#include "convoy/data/records.hpp"

namespace convoy::data {

/// The same for all workers, but for `threads` and `progress`.
struct StoreOptions {
  /// How many times the cluster holds the data: from once to once per worker. Each copy is with a
  /// data group, a contiguous run of workers; records only travel within a group.
  int copies = 1;
  int64_t samples = 0;  ///< of the split that are in use
  int64_t batch = 0;
  int64_t grain = 0;  ///< divides the batch
  /// The grains of each worker; empty: one worker has all.
  std::vector<GrainRange> ranges;
  /// Which grains a worker has changes from step to step: a step is begun only when announce() has
  /// said its ranges, and those above say by which records are held.
  bool announced = false;
  uint64_t seed = 1;
  int64_t first_step = 0;       ///< where training is taken up
  int64_t shuffle_epochs = 0;   ///< records change hands every so many epochs; 0: never
  int ahead = 3;                ///< steps that are here or on their way, with the one in use
  int threads = 1;              ///< that read the file
  Bytes segment{64 << 20};      ///< all buffers of a worker while records change hands
  bool skip_bad = false;        ///< keep records whose checksum is wrong, and list them
  Seconds deadline{300};        ///< longest wait of take() and finish()
  Seconds load_deadline{3600};  ///< longest wait for others that still read the file
  /// While the file is read: how much of this worker's part is here. One call at a time.
  std::function<void(Bytes loaded, Bytes all)> progress;
};

/// take() and release() are for the threads of a loader; everything else is for one thread.
class Store : public Feed {
 public:
  /// Reads this worker's part of the records from `first_record` on, checks their checksums, and
  /// waits for the others; then begins to fetch. Collective over `world` (null: this worker is
  /// alone), of which only the ranks are used afterwards. Throws InputError naming file, record and
  /// source of a damaged record, and on the other workers one that names who could not read.
  Store(std::shared_ptr<const PackedFile> file, int64_t first_record, comm::Communicator* world,
        const StoreOptions& options);
  /// Without finish() before it, gives up whatever is under way.
  ~Store() override;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// The ranges of a step, if they are to be announced: of every step once, in order from the first
  /// one on, the same on all workers. Where nothing travels it is only checked that they are.
  void announce(int64_t step, std::vector<GrainRange> ranges);
  /// How many steps behind the one in use have to be announced for records to travel as early as
  /// `ahead` allows: ahead − 1, or 0 where nothing travels or nothing is announced. Workers agree
  /// on ranges, so it is the same on all: also on one that has a copy of its own while others have
  /// not.
  int lag() const;
  /// Where nothing travels, everything is here and any grain can be taken.
  bool is_announced() const override;

  /// Throws comm::TimeoutError naming step, grain and the ranks that it waited for, and what the
  /// communication thread threw.
  std::vector<Stored> take(int64_t step, int64_t grain) override;
  void release(int64_t step, int64_t grain) override;
  void stop() override;

  /// The orderly end, for all workers together and at any step, once nobody waits for a grain any
  /// more, and all have announced the same steps: what one has begun to send, the others still
  /// receive. Nothing can be taken afterwards.
  void finish();

  /// Of the records held here, without those that were fetched for a step.
  Bytes held() const;
  StoreCounters counters() const;
  /// Those read by this worker, in the order of samples.
  const std::vector<BadRecord>& bad_records() const;

  /// The memory that a store will take on the worker where it is largest: the records held, what
  /// they need besides, steps on their way, and the buffers of a shuffle. Records differ in length,
  /// so steps are foreseen by the mean, and shuffles by the first that is to come; shares by
  /// StoreOptions::ranges.
  static Bytes memory(const PackedFile& file, int64_t first_record, const StoreOptions& options);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace convoy::data
