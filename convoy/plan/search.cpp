#include "convoy/plan/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "convoy/base/error.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

std::vector<int> divisors_of(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

/// Every way to spread a batch over so many workers that the pins allow.
std::vector<Configuration> spreads(const Workload& w, const SearchOptions& o, int workers,
                                   int64_t batch) {
  std::vector<Configuration> all;
  const Pins& pins = o.pins;
  for (const int groups : divisors_of(workers)) {
    if (pins.groups && *pins.groups != groups) continue;
    if (pins.reproducible && groups > 1 && !pins.groups) continue;
    Configuration c = o.start;
    c.workers = workers;
    c.groups = groups;
    c.batch = batch;
    c.servers = groups > 1 && pins.servers ? *pins.servers : 0;
    c.own_servers = o.start.own_servers && groups > 1;
    if (c.own_servers && c.servers == 0) c.servers = 1;
    const auto add = [&](const std::string& classifier, int layers, int copies) {
      if (pins.classifier && *pins.classifier != classifier) return;
      if (pins.reproducible && classifier != "data" && !pins.classifier) return;
      const int split = layers > 0 ? layers : w.tail();
      if (classifier != "data" && pins.layers && *pins.layers != split) return;
      if (classifier == "hybrid" && pins.copies && *pins.copies != copies) return;
      c.classifier = classifier;
      c.layers = layers;
      c.copies = copies;
      all.push_back(c);
    };
    add("data", 0, 1);
    if (w.tail() == 0) continue;
    const int together = workers / groups;
    if (workers > 1) add("merged", 0, 1);
    for (int layers = 1; together > 1 && layers <= w.tail(); ++layers) {
      for (const int copies : divisors_of(together)) {
        if (copies == together) continue;
        add(copies == 1 ? "model" : "hybrid", layers, copies);
      }
    }
  }
  return all;
}

std::vector<int64_t> batches(const SearchOptions& o) {
  if (o.pins.batch) return {*o.pins.batch};
  std::vector<int64_t> all;
  // Without a noise scale nothing says what a larger batch would be worth.
  if (o.statistics.noise_scale <= 0) return {o.statistics.batch};
  for (int64_t b = std::max<int64_t>(o.start.grain, o.statistics.batch / 8);
       b <= 16 * o.statistics.batch; b *= 2) {
    all.push_back(b);
  }
  return all;
}

Bytes least_memory(const std::vector<const NodeType*>& nodes) {
  Bytes least{0};
  for (const NodeType* node : nodes) {
    if (node->memory.value == 0) continue;
    if (least.value == 0 || node->memory < least) least = node->memory;
  }
  return least;
}

}  // namespace

double group_penalty(int groups, double momentum) {
  check(groups >= 1 && momentum >= 0 && momentum < 1, "groups and a momentum");
  constexpr double kDoubling = 0.05;
  return std::max(1.0, groups * (1 - momentum)) * (1 + kDoubling * std::log2(groups));
}

double Statistics::updates(int64_t of, int groups) const {
  const double by_batch = noise_scale > 0 ? (1 + noise_scale / static_cast<double>(of)) /
                                                (1 + noise_scale / static_cast<double>(batch))
                                          : static_cast<double>(batch) / static_cast<double>(of);
  return by_batch * group_penalty(groups, momentum);
}

std::vector<int> worker_counts(int most) {
  std::vector<int> all;
  for (int n = 1; n <= std::min(most, 16); ++n) all.push_back(n);
  for (double n = 16 * 1.2; n < most; n *= 1.2) {
    const int even = static_cast<int>(n) / 4 * 4;
    if (even > all.back()) all.push_back(even);
  }
  for (int n = 32; n <= most; n *= 2) all.push_back(n);
  all.push_back(most);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

SearchResult search(const Workload& workload, const Cluster& cluster,
                    const SearchOptions& options) {
  const EventModel model(workload, cluster);
  SearchResult result;
  std::vector<Configuration> all;
  if (options.pins.workers && *options.pins.workers > cluster.size()) {
    refuse("{} has {}, not {}", cluster.name, plural(cluster.size(), "node"),
           *options.pins.workers);
  }
  const std::vector<int> counts = options.pins.workers ? std::vector<int>{*options.pins.workers}
                                                       : worker_counts(cluster.size());
  for (const int workers : counts) {
    for (const int64_t batch : batches(options)) {
      for (const Configuration& c : spreads(workload, options, workers, batch)) {
        if (c.processes() <= cluster.size()) all.push_back(c);
      }
    }
  }
  if (all.empty()) {
    refuse("no configuration of {} is as pinned", plural(cluster.size(), "node"));
  }
  Bytes least{0};
  for (const Configuration& c : all) {
    if (options.progress) options.progress(result.tried, static_cast<int>(all.size()));
    ++result.tried;
    Candidate candidate;
    candidate.configuration = c;
    candidate.forecast = model.forecast(c);
    candidate.updates = options.statistics.updates(c.batch, c.groups);
    candidate.time = {candidate.forecast.update.value * candidate.updates};
    const Bytes room = least_memory(cluster.fastest(c.workers));
    if (room.value > 0 && candidate.forecast.memory > room) {
      ++result.too_large;
      if (least.value == 0 || candidate.forecast.memory < least) least = candidate.forecast.memory;
      continue;
    }
    result.ranked.push_back(std::move(candidate));
  }
  if (options.progress) options.progress(result.tried, static_cast<int>(all.size()));
  if (result.ranked.empty()) {
    refuse("{} does not fit into the nodes of {}: it takes {} at least", workload.model,
           cluster.name, to_string(least));
  }
  std::ranges::stable_sort(result.ranked, {}, &Candidate::time);
  std::map<int, Candidate> best;
  for (const Candidate& c : result.ranked) best.try_emplace(c.configuration.workers, c);
  for (const auto& [workers, candidate] : best) result.by_workers.push_back(candidate);
  return result;
}

std::vector<Advice> advise(const Workload& workload, const Cluster& cluster,
                           const SearchOptions& options, const SearchResult& found) {
  std::vector<Advice> all;
  SearchOptions quiet = options;
  quiet.progress = nullptr;
  // The same number of workers and batch: what is asked is what is worth paying for.
  quiet.pins.workers = found.best().configuration.workers;
  quiet.pins.batch = found.best().configuration.batch;
  const auto with = [&](const std::string& what, const Cluster& better) {
    const SearchResult then = search(workload, better, quiet);
    const Seconds time = then.best().time;
    all.push_back({what, time, found.best().time.value / time.value});
  };
  Cluster links = cluster;
  Cluster latency = cluster;
  Cluster nodes = cluster;
  Cluster memory = cluster;
  for (size_t i = 0; i < cluster.nodes.size(); ++i) {
    links.nodes[i].link.bandwidth *= 2;
    latency.nodes[i].link.latency.value /= 2;
    latency.nodes[i].link.per_message.value /= 2;
    nodes.nodes[i].gflops *= 2;
    nodes.nodes[i].speed *= 2;
    memory.nodes[i].memory.value *= 2;
  }
  with("nodes of twice the speed", nodes);
  if (found.best().configuration.workers > 1) {
    with("links of twice the bandwidth", links);
    with("messages of half the latency", latency);
  }
  if (found.too_large > 0) with("twice the memory", memory);
  std::ranges::stable_sort(all, std::greater<>{}, &Advice::gain);
  return all;
}

}  // namespace convoy::plan
