#include "app/allreduce_table.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "convoy/base/error.hpp"
#include "convoy/base/memory.hpp"
#include "convoy/base/random.hpp"
#include "convoy/base/text.hpp"
#include "convoy/comm/choose.hpp"
#include "convoy/comm/mpi.hpp"
#include "convoy/comm/two_level.hpp"
#include "convoy/plan/measurements.hpp"

namespace convoy::app {
namespace {

/// What all ways of one size need.
class Bench {
 public:
  Bench(comm::Communicator& c, const AllreduceArguments& a, const comm::LinkSpeed& link,
        int64_t count, const AllreducePeers& peers);

  /// Median seconds of each way.
  std::vector<double> measure();
  const std::vector<AllreduceWay>& ways() const { return ways_; }

 private:
  void add_own(const AllreduceArguments& a, const comm::LinkSpeed& link);
  void add_on_node(const comm::LinkSpeed& link);
  void keep_only(const std::vector<std::string>& names);
  /// Seconds of one call, of the slowest rank.
  double time_of(const AllreduceWay& way);
  /// The largest of all ranks' values; nobody has it before all have come.
  double largest(double value);

  comm::Communicator& c_;
  Seconds patience_;
  double budget_;
  int64_t count_;
  AlignedBuffer buffer_;
  AlignedBuffer copy_;  // only where ranks share a node
  std::optional<comm::TwoLevelSum> two_level_;
  std::vector<AllreduceWay> ways_;
};

Bench::Bench(comm::Communicator& c, const AllreduceArguments& a, const comm::LinkSpeed& link,
             int64_t count, const AllreducePeers& peers)
    : c_(c),
      patience_{a.patience},
      budget_(a.seconds),
      count_(count),
      buffer_(AlignedBuffer::of_floats(count)) {
  ways_.push_back(
      {"mpi", buffer_.floats(), [this] { comm::mpi_blocking_allreduce(c_, buffer_.floats()); }});
  if (peers) {
    for (AllreduceWay& way : peers(buffer_.floats())) ways_.push_back(std::move(way));
  }
  add_own(a, link);
  add_on_node(link);
  keep_only(a.ways);
}

std::string describe(const comm::Way& way) {
  if (way.algorithm != comm::Algorithm::colors) return to_string(way.algorithm);
  return fmt::format("{} colors, chunks of {}", way.colors.colors,
                     to_string(Bytes{4 * way.colors.chunk}));
}

void Bench::add_own(const AllreduceArguments& a, const comm::LinkSpeed& link) {
  const auto add = [this](const std::string& name, const comm::Way& way) {
    const std::string note = describe(way);
    ways_.push_back({name, buffer_.floats(),
                     [this, name, way] {
                       comm::wait(comm::allreduce(c_, buffer_.floats(), 3, way), patience_, name);
                     },
                     note == name ? "" : note});
  };
  for (const comm::Algorithm algorithm : comm::kAlgorithms) {
    comm::Way way = algorithm;
    if (algorithm == comm::Algorithm::colors) {
      way = comm::fastest_trees_tried(c_, count_, link, patience_);
    }
    if (a.colors > 0) way.colors.colors = a.colors;
    if (!a.chunk.empty()) way.colors.chunk = parse_bytes(a.chunk).value / 4;
    add(to_string(algorithm), way);
  }
  add("auto", comm::fastest_tried(c_, count_, link, patience_));
}

/// Where ranks share nodes, the sum in shared memory, and that is the automatic choice.
void Bench::add_on_node(const comm::LinkSpeed& link) {
  two_level_.emplace(c_, count_);
  if (two_level_->nodes() == c_.size()) {
    two_level_.reset();
    return;
  }
  ways_.pop_back();  // the choice among messages
  const comm::Way way = comm::fastest(comm::Form::allreduce, two_level_->nodes(),
                                      count_ / two_level_->senders(), link);
  const bool one_node = two_level_->nodes() == 1;
  AllreduceWay shared{
      one_node ? "shared" : "two-level", two_level_->own(),
      [this, way] { comm::wait(two_level_->allreduce(3, way), patience_, "on the node"); },
      one_node ? "" : "between nodes: " + describe(way)};
  if (one_node) {
    copy_ = AlignedBuffer::of_floats(count_);
    ways_.push_back({"copy",
                     {},
                     [this] { std::ranges::copy(buffer_.floats(), copy_.floats().begin()); },
                     "no sum: reads and writes as many bytes as shared, the memory's limit"});
  }
  AllreduceWay chosen = shared;
  chosen.note = shared.name + (one_node ? "" : ", " + shared.note);
  chosen.name = "auto";
  ways_.push_back(std::move(shared));
  ways_.push_back(std::move(chosen));
}

void Bench::keep_only(const std::vector<std::string>& names) {
  if (names.empty()) return;
  for (const std::string& name : names) {
    const bool known = std::ranges::any_of(ways_, [&](const auto& w) { return w.name == name; });
    if (known) continue;
    std::vector<std::string> all;
    for (const AllreduceWay& way : ways_) all.push_back(way.name);
    refuse("'{}' is no way to sum here; there are: {}", name, fmt::join(all, ", "));
  }
  std::erase_if(ways_, [&](const AllreduceWay& way) {
    return way.name != "mpi" && std::ranges::find(names, way.name) == names.end();
  });
}

double Bench::largest(double value) {
  std::vector<float> all(static_cast<size_t>(c_.size()));
  comm::Strips strips;
  for (int64_t r = 0; r < c_.size(); ++r) strips.push_back({r, r + 1});
  all[static_cast<size_t>(c_.rank())] = static_cast<float>(value);
  comm::wait(comm::direct_part_broadcast(c_, all, strips, 1), patience_, "exchanging times");
  return static_cast<double>(*std::ranges::max_element(all));
}

double Bench::time_of(const AllreduceWay& way) {
  std::ranges::fill(way.values, static_cast<float>(c_.rank() + 1));
  largest(0);  // so that all start together
  const Seconds before = now();
  way.run();
  const double took = largest((now() - before).value);
  const auto expected = static_cast<float>(c_.size() * (c_.size() + 1) / 2);
  if (!std::ranges::all_of(way.values, [&](float v) { return v == expected; })) {
    fail("{} has a wrong sum on rank {}", way.name, c_.rank());
  }
  return took;
}

std::vector<double> Bench::measure() {
  constexpr int kAtLeast = 3;
  constexpr int kAtMost = 300;
  std::vector<std::vector<double>> times(ways_.size());
  double spent = 0;
  for (int round = 0; round <= kAtLeast ||
                      (spent < budget_ * static_cast<double>(ways_.size()) && round < kAtMost);
       ++round) {
    // What was sent just before may still fill a link's queue, so no way always follows the same
    // one.
    for (size_t i = 0; i < ways_.size(); ++i) {
      const size_t w = permuted(i, ways_.size(), 1, static_cast<uint64_t>(round));
      const double seconds = time_of(ways_[w]);
      spent += seconds;
      if (round > 0) times[w].push_back(seconds);
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& of_way : times) medians.push_back(plan::median(of_way));
  return medians;
}

}  // namespace

void add_allreduce_options(CLI::App& verb, AllreduceArguments& a) {
  verb.add_option("--sizes", a.sizes, "Bytes, as 64KiB,16MiB")->delimiter(',');
  verb.add_option("--ways", a.ways, "Only these, and mpi (default: all)")->delimiter(',');
  verb.add_option("--colors", a.colors, "Trees of colors (default: the best of some tried)");
  verb.add_option("--chunk", a.chunk, "Bytes of a chunk of colors (default: likewise)");
  verb.add_option("--seconds", a.seconds, "For each way and size")->capture_default_str();
  verb.add_option("--deadline", a.patience, "Seconds that a sum may take")->capture_default_str();
  verb.add_flag("--json", a.json, "Print one JSON object");
}

int compare_allreduce(comm::Communicator& c, const AllreduceArguments& a,
                      const AllreducePeers& peers) {
  const comm::LinkSpeed link = comm::measure_links(c, Seconds{a.patience});
  const bool table = c.rank() == 0 && !a.json;
  if (table) {
    fmt::print(
        "{}; a message takes {:.1f} µs + {:.3f} µs per KiB (long ones {:.3f}, to one rank {:.3f}), "
        "further ones {:.1f} µs each\n",
        plural(c.size(), "rank"), link.latency.value * 1e6, link.per_byte.value * 1e6 * 1024,
        link.long_per_byte.value * 1e6 * 1024, link.to_one_per_byte.value * 1e6 * 1024,
        link.per_message.value * 1e6);
    fmt::print("{:>10} {:>10} {:>10} {:>10} {:>10}\n", "size", "way", "ms", "GB/s", "× mpi");
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& text : a.sizes) {
    const Bytes size = parse_bytes(text);
    Bench bench(c, a, link, size.value / 4, peers);
    const std::vector<double> seconds = bench.measure();
    for (size_t w = 0; w < seconds.size(); ++w) {
      const AllreduceWay& way = bench.ways()[w];
      rows.push_back({{"bytes", size.value},
                      {"way", way.name},
                      {"note", way.note},
                      {"seconds", seconds[w]},
                      {"times_mpi", seconds[0] / seconds[w]}});
      if (!table) continue;
      fmt::print("{:>10} {:>10} {:>10.3f} {:>10.3f} {:>10.2f}  {}\n", to_string(size), way.name,
                 seconds[w] * 1e3, static_cast<double>(size.value) / seconds[w] / 1e9,
                 seconds[0] / seconds[w], way.note);
      std::fflush(stdout);
    }
  }
  if (c.rank() == 0 && a.json) {
    fmt::print("{}\n", nlohmann::json{{"ranks", c.size()},
                                      {"latency_seconds", link.latency.value},
                                      {"seconds_per_byte", link.per_byte.value},
                                      {"seconds_per_message", link.per_message.value},
                                      {"results", rows}}
                           .dump());
  }
  return 0;
}

}  // namespace convoy::app
