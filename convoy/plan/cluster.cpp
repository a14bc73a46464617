#include "convoy/plan/cluster.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "convoy/base/error.hpp"
#include "convoy/base/file.hpp"
#include "convoy/base/text.hpp"

namespace convoy::plan {
namespace {

/// A number and what follows it, in lower case and without blanks.
std::pair<double, std::string> number_and_unit(const std::string& text, const char* expected) {
  std::string clean;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) clean += c;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(clean.data(), clean.data() + clean.size(), value);
  if (error != std::errc() || !(value >= 0) || value > 1e18) {
    refuse("'{}' is not {}", text, expected);
  }
  std::string unit(end, static_cast<const char*>(clean.data() + clean.size()));
  return {value, unit};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Reads the keys of a map by a table, and refuses others.
class Reader {
 public:
  using Take = std::function<void(const YAML::Node& value)>;
  Reader(const std::string& file, std::map<std::string, Take> keys)
      : file_(file), keys_(std::move(keys)) {}

  void read(const YAML::Node& map, const std::string& what) const {
    if (!map.IsMap()) refuse_at(map, fmt::format("{} is a map of keys", what));
    for (const auto& entry : map) {
      const std::string key = entry.first.Scalar();
      const auto found = keys_.find(key);
      if (found == keys_.end()) {
        std::vector<std::string> known;
        for (const auto& [name, take] : keys_) known.push_back(name);
        refuse_at(entry.first,
                  fmt::format("{} has no key '{}'; it has {}", what, key, join(known, ", ")));
      }
      try {
        found->second(entry.second);
      } catch (const YAML::Exception&) {
        refuse_at(entry.second, fmt::format("{}: '{}' cannot be read", key, scalar(entry.second)));
      } catch (const InputError& error) {
        if (std::string_view(error.what()).starts_with(file_ + ":")) throw;
        refuse_at(entry.second, fmt::format("{}: {}", key, error.what()));
      }
    }
  }

 private:
  static std::string scalar(const YAML::Node& node) {
    return node.IsScalar() ? node.Scalar() : "what stands there";
  }
  [[noreturn]] void refuse_at(const YAML::Node& node, const std::string& what) const {
    refuse("{}:{}: {}", file_, node.Mark().line + 1, what);
  }

  const std::string& file_;
  std::map<std::string, Take> keys_;
};

double positive(const YAML::Node& node, const char* what) {
  const auto value = node.as<double>();
  if (!(value > 0)) refuse("{} is greater than 0", what);
  return value;
}

double part_of(const YAML::Node& node, const char* what) {
  const auto value = node.as<double>();
  if (!(value > 0 && value <= 1)) refuse("{} is greater than 0 and at most 1", what);
  return value;
}

int count_of(const YAML::Node& node, const char* what) {
  const auto value = node.as<int>();
  if (value < 1) refuse("{} is at least 1", what);
  return value;
}

NodeLink read_link(const YAML::Node& node, const std::string& file) {
  NodeLink link;
  Reader(file,
         {{"latency", [&](const auto& v) { link.latency = parse_latency(v.Scalar()); }},
          {"bandwidth", [&](const auto& v) { link.bandwidth = parse_bandwidth(v.Scalar()); }},
          {"connection", [&](const auto& v) { link.connection = parse_bandwidth(v.Scalar()); }},
          {"longest", [&](const auto& v) { link.longest = parse_bytes(v.Scalar()); }},
          {"long_bandwidth",
           [&](const auto& v) { link.long_bandwidth = parse_bandwidth(v.Scalar()); }},
          {"per_message", [&](const auto& v) { link.per_message = parse_latency(v.Scalar()); }},
          {"beside_lanes",
           [&](const auto& v) { link.beside_lanes = part_of(v, "what is left of a link"); }},
          {"lanes_left",
           [&](const auto& v) { link.lanes_left = part_of(v, "what is left of the lanes"); }}})
      .read(node, "a link");
  return link;
}

NodeType read_node(const YAML::Node& node, const std::string& file) {
  NodeType type;
  Reader(file,
         {{"name", [&](const auto& v) { type.name = v.Scalar(); }},
          {"count", [&](const auto& v) { type.count = count_of(v, "a count of nodes"); }},
          {"cores", [&](const auto& v) { type.cores = count_of(v, "a number of cores"); }},
          {"workers", [&](const auto& v) { type.workers = count_of(v, "a number of workers"); }},
          {"gflops", [&](const auto& v) { type.gflops = positive(v, "GFLOP/s"); }},
          {"speed", [&](const auto& v) { type.speed = positive(v, "a speed"); }},
          {"memory", [&](const auto& v) { type.memory = parse_bytes(v.Scalar()); }},
          {"link", [&](const auto& v) { type.link = read_link(v, file); }}})
      .read(node, "a kind of nodes");
  return type;
}

}  // namespace

int Cluster::size() const {
  int sum = 0;
  for (const NodeType& node : nodes) sum += node.count * node.workers;
  return sum;
}

std::vector<const NodeType*> Cluster::fastest(int count) const {
  std::vector<const NodeType*> types;
  for (const NodeType& node : nodes) types.push_back(&node);
  std::ranges::stable_sort(types, [](const NodeType* a, const NodeType* b) {
    const auto of_worker = [](const NodeType* n) {
      return std::pair(n->gflops / n->workers, n->speed / n->workers);
    };
    return of_worker(a) > of_worker(b);
  });
  std::vector<const NodeType*> all;
  for (const NodeType* type : types) {
    for (int i = 0; i < type->count * type->workers && static_cast<int>(all.size()) < count; ++i) {
      all.push_back(type);
    }
  }
  return all;
}

comm::LinkSpeed Cluster::link(const std::vector<const NodeType*>& used) const {
  comm::LinkSpeed link;
  link.longest = {std::numeric_limits<int64_t>::max()};
  for (const NodeType* node : used) {
    const NodeLink& own = node->link;
    link.latency = std::max(link.latency, own.latency);
    link.per_byte = std::max(link.per_byte, Seconds{1 / own.bandwidth});
    link.per_message = std::max(link.per_message, own.per_message);
    if (own.connection > 0) {
      link.to_one_per_byte = std::max(link.to_one_per_byte, Seconds{1 / own.connection});
    }
    if (own.longest.value > 0 && own.long_bandwidth > 0) {
      link.longest = std::min(link.longest, own.longest);
      link.long_per_byte = std::max(link.long_per_byte, Seconds{1 / own.long_bandwidth});
    }
  }
  link.long_per_byte = std::max(link.long_per_byte, link.per_byte);
  link.add_per_byte = {1 / adding};
  return link;
}

Cluster parse_cluster(const std::string& yaml, const std::string& file) {
  Cluster cluster;
  YAML::Node root;
  try {
    root = YAML::Load(yaml);
  } catch (const YAML::Exception& error) {
    refuse("{}: {}", file, error.what());
  }
  Reader(file, {{"name", [&](const auto& v) { cluster.name = v.Scalar(); }},
                {"note", [&](const auto& v) { cluster.note = v.Scalar(); }},
                {"adding", [&](const auto& v) { cluster.adding = parse_bandwidth(v.Scalar()); }},
                {"nodes",
                 [&](const auto& v) {
                   if (!v.IsSequence()) refuse("nodes are a list");
                   for (const auto& node : v) cluster.nodes.push_back(read_node(node, file));
                 }}})
      .read(root, "a cluster");
  if (cluster.nodes.empty()) refuse("{}: a cluster has nodes", file);
  for (const NodeType& node : cluster.nodes) {
    if ((node.gflops > 0) != (cluster.nodes.front().gflops > 0)) {
      refuse("{}: either all kinds of nodes have gflops or none has, so that they can be compared",
             file);
    }
  }
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& file) {
  const std::vector<uint8_t> bytes = read_file(file);
  return parse_cluster(std::string(bytes.begin(), bytes.end()), file.string());
}

std::string to_yaml(const Cluster& cluster) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "name" << YAML::Value << cluster.name;
  if (!cluster.note.empty()) out << YAML::Key << "note" << YAML::Value << cluster.note;
  out << YAML::Key << "adding" << YAML::Value << fmt::format("{:.4g}GB/s", cluster.adding / 1e9);
  out << YAML::Key << "nodes" << YAML::Value << YAML::BeginSeq;
  for (const NodeType& node : cluster.nodes) {
    out << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "name" << YAML::Value << node.name;
    out << YAML::Key << "count" << YAML::Value << node.count;
    out << YAML::Key << "cores" << YAML::Value << node.cores;
    if (node.workers > 1) out << YAML::Key << "workers" << YAML::Value << node.workers;
    if (node.gflops > 0) {
      out << YAML::Key << "gflops" << YAML::Value << fmt::format("{:.5g}", node.gflops);
    } else {
      out << YAML::Key << "speed" << YAML::Value << fmt::format("{:.4g}", node.speed);
    }
    if (node.memory.value > 0) {
      out << YAML::Key << "memory" << YAML::Value
          << fmt::format("{}MiB", node.memory.value / (1 << 20));
    }
    out << YAML::Key << "link" << YAML::Value << YAML::BeginMap;
    out << YAML::Key << "latency" << YAML::Value
        << fmt::format("{:.4g}us", node.link.latency.value * 1e6);
    out << YAML::Key << "bandwidth" << YAML::Value
        << fmt::format("{:.4g}MB/s", node.link.bandwidth / 1e6);
    if (node.link.connection > 0) {
      out << YAML::Key << "connection" << YAML::Value
          << fmt::format("{:.4g}MB/s", node.link.connection / 1e6);
    }
    if (node.link.longest.value > 0) {
      out << YAML::Key << "longest" << YAML::Value << fmt::format("{}B", node.link.longest.value);
      out << YAML::Key << "long_bandwidth" << YAML::Value
          << fmt::format("{:.4g}MB/s", node.link.long_bandwidth / 1e6);
    }
    out << YAML::Key << "per_message" << YAML::Value
        << fmt::format("{:.4g}us", node.link.per_message.value * 1e6);
    if (node.link.beside_lanes < 1 || node.link.lanes_left < 1) {
      out << YAML::Key << "beside_lanes" << YAML::Value
          << fmt::format("{:.4g}", node.link.beside_lanes);
      out << YAML::Key << "lanes_left" << YAML::Value
          << fmt::format("{:.4g}", node.link.lanes_left);
    }
    out << YAML::EndMap << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

double parse_bandwidth(const std::string& text) {
  constexpr const char* kExpected = "a bandwidth such as 1Gbit/s or 125MB/s";
  auto [value, unit] = number_and_unit(text, kExpected);
  if (unit.ends_with("/s")) unit.resize(unit.size() - 2);
  // Some write Gb for bits, others for bytes.
  if (unit.ends_with("b") ||
      (unit.ends_with("B") && unit.size() > 1 && unit[unit.size() - 2] == 'b')) {
    refuse("'{}' may mean bits or bytes: write Gbit/s or GB/s", text);
  }
  const bool bits = lower(unit).ends_with("bit");
  const bool binary = lower(unit).find("ib") != std::string::npos && !bits;
  const double base = binary ? 1024 : 1000;
  double scale = 1;
  const std::string prefix = lower(unit);
  if (!prefix.empty()) {
    const size_t power = std::string("bkmgt").find(prefix[0]);
    if (power == std::string::npos) refuse("'{}' is not {}", text, kExpected);
    for (size_t i = 0; i < power; ++i) scale *= base;
    const std::string rest = prefix.substr(power == 0 ? 0 : 1);
    if (rest != "b" && rest != "ib" && rest != "bit") refuse("'{}' is not {}", text, kExpected);
  }
  const double bytes = value * scale / (bits ? 8 : 1);
  if (!(bytes > 0)) refuse("'{}' is not {}", text, kExpected);
  return bytes;
}

Seconds parse_latency(const std::string& text) {
  constexpr const char* kExpected = "a time such as 50us or 1.5ms";
  const auto [value, unit] = number_and_unit(text, kExpected);
  static const std::map<std::string, double> kUnits = {{"ns", 1e9}, {"us", 1e6}, {"µs", 1e6},
                                                       {"ms", 1e3}, {"s", 1},    {"", 1}};
  const auto found = kUnits.find(unit);
  if (found == kUnits.end()) refuse("'{}' is not {}", text, kExpected);
  return {value / found->second};
}

std::string bandwidth_to_string(double bytes_per_second) {
  constexpr const char* kUnits[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
  double value = 8 * bytes_per_second;
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

}  // namespace convoy::plan
