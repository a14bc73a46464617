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

/// Servers of their own that groups may have: more than groups have nobody to serve at once.
std::vector<int> own_servers(int groups) {
  std::vector<int> all;
  for (int servers = 1; servers <= groups; servers *= 2) all.push_back(servers);
  return all;
}

/// Servers of groups, and whether they are processes of their own; 0: beside workers.
std::vector<std::pair<int, bool>> servers_for(const SearchOptions& o, int groups) {
  if (groups == 1) return {{0, false}};
  if (o.pins.servers) return {{*o.pins.servers, o.start.own_servers}};
  if (!o.start.own_servers) return {{0, false}};
  std::vector<std::pair<int, bool>> all;
  for (const int servers : own_servers(groups)) all.emplace_back(servers, true);
  return all;
}

/// The best of what was found with servers beside workers, with servers of their own instead: all
/// of them would take several times as long to predict.
std::vector<Configuration> with_own_servers(const SearchOptions& o, const SearchResult& found) {
  constexpr int kTried = 8;
  std::vector<Configuration> all;
  if (o.pins.servers || o.start.own_servers) return all;
  int tried = 0;
  for (const Candidate& candidate : found.ranked) {
    Configuration c = candidate.configuration;
    if (c.groups == 1) continue;
    if (++tried > kTried) break;
    c.own_servers = true;
    for (const int servers : own_servers(c.groups)) {
      c.servers = servers;
      all.push_back(c);
    }
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
    const auto add = [&](const std::string& classifier, int layers, int copies) {
      if (pins.classifier && *pins.classifier != classifier) return;
      if (pins.reproducible && classifier != "data" && !pins.classifier) return;
      const int split = layers > 0 ? layers : w.tail();
      if (classifier != "data" && pins.layers && *pins.layers != split) return;
      if (classifier == "hybrid" && pins.copies && *pins.copies != copies) return;
      c.classifier = classifier;
      c.layers = layers;
      c.copies = copies;
      for (const auto& [servers, own] : servers_for(o, groups)) {
        c.servers = servers;
        c.own_servers = own;
        all.push_back(c);
      }
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
    const Bytes own{node->memory.value / node->workers};
    if (least.value == 0 || own < least) least = own;
  }
  return least;
}

}  // namespace

Pins pins_of(const job::Job& job) {
  Pins pins;
  if (job.engine.lanes > 0) pins.lanes = static_cast<int>(job.engine.lanes);
  if (job.engine.grain > 0) pins.grain = job.engine.grain;
  return pins;
}

Configuration configuration_of(const job::Job& job, const Plan& plan, const Cluster& cluster) {
  Configuration c;
  c.batch = plan.batch;
  c.grain = plan.grain;
  c.lanes = plan.lanes;
  if (job.engine.lanes == 0 && cluster.nodes.front().gflops > 0) {
    for (const NodeType& node : cluster.nodes) {
      c.lanes = std::max(c.lanes, node.cores / node.workers);
    }
  }
  c.balanced = job.sync.mode != "bsp";
  c.overlap = job.sync.overlap;
  if (job.sync.bucket.value > 0) c.bucket = job.sync.bucket;
  c.own_servers = job.cluster.own_servers;
  c.collective =
      job.sync.allreduce == "auto" && job.sync.reproducible ? "tree" : job.sync.allreduce;
  return c;
}

bool fit(const Workload& workload, const Pins& pins, Bytes room, Configuration& c) {
  if (!pins.lanes) {
    c.lanes = static_cast<int>(std::clamp<int64_t>(c.batch / c.together(), 1, c.lanes));
  }
  // The next smaller grain that a batch can be cut into.
  const auto smaller = [&] {
    int64_t grain = c.grain - 1;
    while (grain > 1 && c.batch % grain != 0) --grain;
    c.grain = std::max<int64_t>(1, grain);
  };
  if (!pins.grain) {
    c.grain = std::min(c.grain, c.batch);
    while (c.grain > 1 && c.batch / c.grain < int64_t{c.together()} * c.lanes) smaller();
  }
  const auto fits = [&] { return room.value == 0 || worker_memory(workload, c) <= room; };
  while (!pins.grain && c.grain > 1 && !fits()) smaller();
  while (!pins.lanes && c.lanes > 1 && !fits()) c.lanes /= 2;
  return fits();
}

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
  const auto consider = [&](Configuration c) {
    ++result.tried;
    if (!fit(workload, options.pins, least_memory(cluster.fastest(c.workers)), c)) {
      ++result.too_large;
      const Bytes needed = worker_memory(workload, c);
      if (least.value == 0 || needed < least) least = needed;
      return;
    }
    Candidate candidate;
    candidate.configuration = c;
    candidate.forecast = model.forecast(c);
    candidate.updates = options.statistics.updates(c.batch, c.groups);
    candidate.time = {candidate.forecast.update.value * candidate.updates};
    result.ranked.push_back(std::move(candidate));
  };
  for (const Configuration& c : all) {
    if (options.progress) options.progress(result.tried, static_cast<int>(all.size()));
    consider(c);
  }
  if (options.progress) options.progress(result.tried, static_cast<int>(all.size()));
  if (result.ranked.empty()) {
    refuse("{} does not fit into the nodes of {}: it takes {} at least", workload.model,
           cluster.name, to_string(least));
  }
  std::ranges::stable_sort(result.ranked, {}, &Candidate::time);
  for (const Configuration& c : with_own_servers(options, result)) {
    if (c.processes() <= cluster.size()) consider(c);
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
