#include "convoy/sync/reports.hpp"

#include <cmath>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::sync {
namespace {

bool nonsense(const WorkerReport& report) {
  if (report.grains < 0) return true;
  if (report.grains == 0) return false;
  // A time so small that the speed overflows is as good as zero.
  return !std::isfinite(report.compute.value) || report.compute.value <= 0 ||
         !std::isfinite(static_cast<double>(report.grains) / report.compute.value);
}

}  // namespace

ReportReader::Read ReportReader::read(std::span<const WorkerReport> reports) {
  check(reports.size() == ignored_.size(), "every worker reports");
  Read result;
  result.speeds.resize(reports.size());
  for (size_t i = 0; i < reports.size(); ++i) {
    const WorkerReport& report = reports[i];
    if (nonsense(report)) {
      result.ignored.push_back(static_cast<int>(i));
      if (!ignored_[i]) {
        result.messages.push_back(fmt::format(
            "worker {} reported {} s of computing for {}; its reports are ignored, and it gets an "
            "equal share, until one makes sense",
            i, report.compute.value, plural(report.grains, "grain")));
      }
      ignored_[i] = true;
      continue;
    }
    if (report.grains == 0) continue;
    result.speeds[i] = static_cast<double>(report.grains) / report.compute.value;
    if (ignored_[i]) {
      result.messages.push_back(fmt::format("worker {} reports sense again", i));
      ignored_[i] = false;
    }
  }
  return result;
}

}  // namespace convoy::sync
