#pragma once
// The traffic of records between the members of a data group, on a communication thread of its own.
//
// Nobody asks for anything: holders.hpp says to everybody who needs what in a step and who has it.
// So each member, for each step and a few steps ahead, sends to each other member one message with
// the records that this one lacks, and where records change hands for good (a shuffle), it sends
// those, in segments.
//
// A step is begun when it is fewer than `ahead` steps from the oldest one that is still open here:
// whose grains are not all released, or whose messages are not all delivered. A member without
// grains in a step has nothing to release; the first member with grains tells it by an empty
// message when it has begun the step. So nobody runs away from the others, and no message waits for
// long in a place where nobody has asked for it.
//
// Which grains members have may change from step to step. Then a step is also not begun before its
// ranges are announced: a message that was sent cannot be taken back. Who holds what does not
// follow them.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/comm_thread.hpp"
#include "convoy/comm/communicator.hpp"
#include "convoy/data/holders.hpp"
#include "convoy/data/records.hpp"

namespace convoy::data {

/// What has come to this worker since the beginning.
struct StoreCounters {
  int64_t fetched_records = 0;  ///< for a step
  Bytes fetched;
  int64_t shuffles = 0;
  int64_t moved_records = 0;  ///< in shuffles
  Bytes moved;
  Seconds shuffling;
};

struct ExchangeOptions {
  int64_t first_step = 0;
  bool announced = false;  ///< steps are begun when their ranges are announced
  int64_t shuffle_epochs = 0;
  int ahead = 3;
  Bytes segment;
  Seconds deadline;
};

class RecordExchange {
 public:
  /// `members` is a communicator of this group alone, for this alone. `held` has what `holders`
  /// gives to this member in the era of the first step; from now on it belongs to the communication
  /// thread. `shares` says by which ranges records are held, and used if they are not announced.
  RecordExchange(HeldRecords& held, std::unique_ptr<comm::Communicator> members, Shares shares,
                 DataGroup group, Holders holders, const ExchangeOptions& options);
  /// Gives up what is under way.
  ~RecordExchange();
  RecordExchange(const RecordExchange&) = delete;
  RecordExchange& operator=(const RecordExchange&) = delete;

  /// How the next step falls to the workers: of each step from the first one on in turn, and the
  /// same on all members.
  void announce(Shares shares);

  /// The records of a grain of this member, which stay until it is released. Throws
  /// comm::TimeoutError naming step, grain and the ranks that it waited for.
  std::vector<RecordBytes> take(int64_t step, int64_t grain);
  void release(int64_t step, int64_t grain);
  /// Ends every take(), now and later; the other members still get what they need.
  void stop();
  /// Collective: begins what any member has begun, and waits for its end. Before it all members
  /// have announced the same steps.
  void finish();
  StoreCounters counters() const;

 private:
  /// A step that was begun and is still open.
  struct Step {
    Shares shares;                     // with its own ranges
    bool looked_up = false;            // whether the next three are filled
    std::vector<int64_t> samples;      // of this member, in the order of the stream
    std::vector<int32_t> holders;      // of each
    std::vector<RecordBytes> records;  // null until they are here
    std::vector<bool> released;        // by grain of this member
    int64_t unreleased = 0;
    std::vector<int> under_way;  // messages to and from each member
    bool exchanged = false;      // everything has arrived, here and where it was sent
  };
  struct Moving;

  // Under the mutex.
  Shares take_shares(int64_t step);             // of a step that is begun
  const Shares& shares_of(int64_t step) const;  // of one that is not over
  GrainRange own_range(const Shares& shares) const;
  bool may_begin(int64_t step) const;
  void begin_steps();
  void close_if_over(int64_t step);
  bool is_over() const;
  std::string what_lacks(int64_t step, int64_t grain) const;
  std::string what_a_shuffle_lacks() const;
  std::string names_of(std::vector<int> members) const;

  // On the communication thread.
  comm::Task exchange(int64_t step);
  comm::Task pace(int member, int64_t step, bool leads);
  comm::Task send_records(int to, int64_t step, std::vector<int64_t> samples);
  comm::Task receive_records(int from, int64_t step, std::vector<size_t> places);
  comm::Task shuffle(int64_t step);
  comm::Task agree_on_the_end();

  template <class Condition, class What>
  void wait_for(std::unique_lock<std::mutex>& lock, const Condition& holds, const What& what);

  HeldRecords& held_;
  const std::unique_ptr<comm::Communicator> members_;
  const Shares shares_;  // by which records are held
  const DataGroup group_;
  const ExchangeOptions options_;
  Holders holders_;  // only for the communication thread

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Shares> announced_;  // of steps that are not begun
  int64_t unknown_;                      // the first step whose ranges are
  std::map<int64_t, Step> steps_;
  int64_t next_;               // step to begin
  int64_t era_;                // of the holders after the last shuffle that was begun
  bool shuffling_ = false;     // before step next_
  int64_t shuffled_ = -1;      // the step before which the last shuffle was begun
  std::vector<int64_t> owed_;  // bytes that each member still owes in a shuffle
  int given_ = 0;              // the member to which a shuffle sends
  Seconds moved_;              // when a shuffle last moved something
  bool stopped_ = false;
  bool ending_ = false;
  int64_t end_ = -1;                // all have begun the steps before it; −1: not known yet
  std::vector<bool> heard_of_end_;  // by member
  StoreCounters counters_;

  comm::CommThread thread_;  // last: ends first
};

}  // namespace convoy::data
