#pragma once
// How packed training samples are kept: how many copies of them the workers hold in memory, or that
// they are read from disk.

#include <functional>
#include <string>

#include "convoy/comm/collectives.hpp"
#include "convoy/data/dataset.hpp"
#include "convoy/data/store.hpp"

namespace convoy::plan {

struct StorePlan {
  int copies = 0;              ///< 0: they stay on disk, mapped into memory
  Bytes memory;                ///< that they will take of the worker where they take most
  int64_t shuffle_epochs = 0;  ///< they change hands every so many epochs; 0: fetched for each step
  std::string reason;          ///< what was decided and why; empty if nothing is packed
};

/// What it adds to a step that samples travel to those who train on them, by each of the two ways.
/// What is fetched for a step travels while the step before it is computed: only what takes longer
/// than that adds to it. While records change hands, everybody waits.
struct MovingCost {
  Seconds fetching;
  Seconds shuffling;  ///< a shuffle in every epoch, over the steps of one
};
/// `all` is the length of all samples, `step` what computing takes.
MovingCost moving_cost(Bytes all, const data::StoreOptions& options, Seconds step,
                       const comm::LinkSpeed& link);

/// The most copies, at most one for each worker, of which a worker's part fits into `budget`; or
/// those that the job wants, if they fit. `options` is the store's but for the copies and for how
/// samples travel, which is the job's wish or else the cheaper way. `step` is what computing takes;
/// 0: not known. `links` measures them, and is only called if that is needed: by all workers, as
/// they are given the same.
StorePlan plan_store(const data::Source& source, const job::Data& wish, data::StoreOptions options,
                     Bytes budget, Seconds step, const std::function<comm::LinkSpeed()>& links);

}  // namespace convoy::plan
