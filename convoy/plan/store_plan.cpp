#include "convoy/plan/store_plan.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

std::string describe(int copies, int workers) {
  if (workers == 1) return "in memory";
  if (copies == workers) return "in memory, all of them at every worker";
  return fmt::format("in memory, {} over {} workers", copies == 1 ? "once" : plural(copies, "time"),
                     workers);
}

}  // namespace

StorePlan plan_store(const data::Source& source, const job::Data& wish, data::StoreOptions options,
                     Bytes budget) {
  if (source.packed.file == nullptr) return {};
  const data::PackedFile& file = *source.packed.file;
  const int workers = std::max<int>(1, static_cast<int>(options.ranges.size()));
  const auto memory = [&](int copies) {
    options.copies = copies;
    return data::Store::memory(file, source.packed.first, options);
  };
  if (wish.copies > workers) {
    refuse("data.copies: {} are more than there are workers ({})", wish.copies, workers);
  }
  Bytes needed;
  for (int copies = wish.copies > 0 ? static_cast<int>(wish.copies) : workers; copies > 0;
       --copies) {
    needed = memory(copies);
    if (needed <= budget) {
      return {copies, needed,
              fmt::format("samples {}: {} of each worker's memory, of {} for them{}",
                          describe(copies, workers), to_string(needed), to_string(budget),
                          wish.copies > 0 ? ", as the job says" : "")};
    }
    if (wish.copies > 0) break;
  }
  return {0,
          {},
          fmt::format("samples are read from disk as they are needed: {} would take {} of each "
                      "worker's memory, and there are {} for them (data.memory)",
                      wish.copies > 1 ? fmt::format("{} copies", wish.copies) : "one copy",
                      to_string(needed), to_string(budget))};
}

}  // namespace convoy::plan
