#pragma once
// How packed training samples are kept: how many copies of them the workers hold in memory, or that
// they are read from disk.

#include <string>

#include "convoy/data/dataset.hpp"
#include "convoy/data/store.hpp"

namespace convoy::plan {

struct StorePlan {
  int copies = 0;      ///< 0: they stay on disk, mapped into memory
  Bytes memory;        ///< that they will take of the worker where they take most
  std::string reason;  ///< what was decided and why; empty if nothing is packed
};

/// The most copies, at most one for each worker, of which a worker's part fits into `budget`; or
/// those that the job wants, if they fit. `options` is the store's but for the copies.
StorePlan plan_store(const data::Source& source, const job::Data& wish, data::StoreOptions options,
                     Bytes budget);

}  // namespace convoy::plan
