#include "convoy/plan/store_plan.hpp"

#include <algorithm>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/alltoall.hpp"

namespace convoy::plan {
namespace {

std::string describe(int copies, int workers) {
  if (workers == 1) return "in memory";
  if (copies == workers) return "in memory, all of them at every worker";
  return fmt::format("in memory, {} over {} workers", copies == 1 ? "once" : plural(copies, "time"),
                     workers);
}

/// Members of the largest group.
int members(const data::StoreOptions& options) {
  const auto workers = std::max<int>(1, static_cast<int>(options.ranges.size()));
  return (workers + options.copies - 1) / options.copies;
}

/// Decides how samples travel, if any must, and adds that to the plan.
void choose_way(StorePlan& plan, const data::Source& source, const job::Data& wish,
                data::StoreOptions options, Bytes budget, Seconds step,
                const std::function<comm::LinkSpeed()>& links) {
  const data::PackedFile& file = *source.packed.file;
  options.copies = plan.copies;
  if (members(options) == 1 || wish.exchange == "fetch") return;
  options.shuffle_epochs = wish.shuffle_epochs;
  const Bytes needed = data::Store::memory(file, source.packed.first, options);
  if (wish.exchange == "shuffle") {
    plan.shuffle_epochs = wish.shuffle_epochs;
    plan.memory = needed;
    return;
  }
  if (step.value <= 0) {
    plan.reason += "; those that a worker lacks are fetched ahead of each step";
    return;
  }
  const Bytes all{file.length(source.packed.first, source.packed.first + options.samples)};
  const MovingCost cost = moving_cost(all, options, step, links());
  const bool shuffles = cost.shuffling < cost.fetching && needed <= budget;
  if (shuffles) {
    plan.shuffle_epochs = wish.shuffle_epochs;
    plan.memory = needed;
  }
  plan.reason += fmt::format(
      "; those that a worker lacks {}: by the measured links fetching them ahead of each step adds "
      "{} to its {}, changing hands every epoch {}",
      shuffles ? "change hands" : "are fetched", to_string(cost.fetching), to_string(step),
      to_string(cost.shuffling));
}

}  // namespace

MovingCost moving_cost(Bytes all, const data::StoreOptions& options, Seconds step,
                       const comm::LinkSpeed& link) {
  const int group = members(options);
  if (group == 1) return {};
  const double mean = static_cast<double>(all.value) / static_cast<double>(options.samples);
  const double steps = static_cast<double>(options.samples) / static_cast<double>(options.batch);
  // Of a member's part of a batch, and of what it holds, all but one in `group` are elsewhere.
  const double others = static_cast<double>(group - 1) / group;
  const double part = static_cast<double>(options.batch) /
                      static_cast<double>(std::max<size_t>(1, options.ranges.size()));
  const double lacks = mean * part * others;
  const double fetching =
      (group - 1) * link.latency.value + link.transfer(lacks, lacks / std::max(1, group - 1)).value;
  const Bytes pair{static_cast<int64_t>(static_cast<double>(all.value) / group / group)};
  const Seconds shuffle = comm::alltoall_time(group, pair, options.segment, link);
  return {{std::max(0.0, fetching - step.value)}, {shuffle.value / std::max(1.0, steps)}};
}

StorePlan plan_store(const data::Source& source, const job::Data& wish, data::StoreOptions options,
                     Bytes budget, Seconds step, const std::function<comm::LinkSpeed()>& links) {
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
      StorePlan plan{copies, needed, 0,
                     fmt::format("samples {}: {} of each worker's memory, of {} for them{}",
                                 describe(copies, workers), to_string(needed), to_string(budget),
                                 wish.copies > 0 ? ", as the job says" : "")};
      choose_way(plan, source, wish, options, budget, step, links);
      return plan;
    }
    if (wish.copies > 0) break;
  }
  return {0,
          {},
          0,
          fmt::format("samples are read from disk as they are needed: {} would take {} of each "
                      "worker's memory, and there are {} for them (data.memory)",
                      wish.copies > 1 ? fmt::format("{} copies", wish.copies) : "one copy",
                      to_string(needed), to_string(budget))};
}

}  // namespace convoy::plan
