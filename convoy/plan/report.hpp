#pragma once
// A plan as a page: one HTML file that needs no network and no script.

#include <string>
#include <vector>

#include "convoy/plan/cluster.hpp"
#include "convoy/plan/search.hpp"
#include "convoy/plan/workload.hpp"

namespace convoy::plan {

struct ReportData {
  const Workload* workload = nullptr;
  const Cluster* cluster = nullptr;
  const SearchResult* found = nullptr;
  std::vector<Advice> advice;
  SearchOptions options;
};

/// The chosen plan, what else there was, scaling, a step's course, groups, memory.
std::string report_html(const ReportData& data);

/// The same in a few lines for a terminal.
std::string describe(const ReportData& data);

/// The chosen configuration as settings of a job: "cluster.groups=2", …
std::vector<std::string> settings_of(const Configuration& configuration);

}  // namespace convoy::plan
