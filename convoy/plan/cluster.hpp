#pragma once
// A cluster as planning sees it: kinds of nodes, how many of each, what they compute and what their
// links carry. Written by hand, or measured (convoy info --cluster):
//
//   name: lab
//   nodes:
//   - {name: new, count: 4, cores: 16, gflops: 900, memory: 64GiB, link: {bandwidth: 10Gbit/s}}
//   - {name: old, count: 12, cores: 8, gflops: 250, memory: 16GiB,
//      link: {latency: 60us, bandwidth: 1Gbit/s}}

#include <filesystem>
#include <string>
#include <vector>

#include "convoy/base/units.hpp"
#include "convoy/comm/collectives.hpp"

namespace convoy::plan {

/// What a node's link takes in each direction at the same time.
struct NodeLink {
  Seconds latency{50e-6};
  double bandwidth = 125e6;   ///< bytes/s
  double connection = 0;      ///< of it, to a single other node; 0: all
  Bytes longest;              ///< message at that rate; 0: any
  double long_bandwidth = 0;  ///< of longer ones, if `longest` says that there are
  Seconds per_message{5e-6};  ///< of a core, for each further message under way
  /// Where lanes have all cores: of the link's speed, what is left while they compute, and of
  /// theirs, while something travels.
  double beside_lanes = 1;
  double lanes_left = 1;
  bool operator==(const NodeLink&) const = default;
};

struct NodeType {
  std::string name;
  int count = 1;
  int cores = 1;
  /// Processes on it that train, which share its cores, memory and link.
  int workers = 1;
  /// What all its cores do in training, in GFLOP/s; 0: `speed` says how fast it is.
  double gflops = 0;
  /// As a multiple of the machine that a job's profile was measured on.
  double speed = 1;
  Bytes memory;  ///< 0: not known
  NodeLink link;
  bool operator==(const NodeType&) const = default;
};

struct Cluster {
  std::string name = "cluster";
  std::vector<NodeType> nodes;
  /// Bytes that a core adds up in a second.
  double adding = 5e9;
  std::string note;  ///< where its numbers come from

  /// Workers that there are.
  int size() const;
  /// The nodes of the first `count` workers, those of the fastest first; one entry each.
  std::vector<const NodeType*> fastest(int count) const;
  /// Of these nodes: the slowest link decides.
  comm::LinkSpeed link(const std::vector<const NodeType*>& nodes) const;
  bool operator==(const Cluster&) const = default;
};

/// Throws InputError naming the file, the line and what is expected.
Cluster read_cluster(const std::filesystem::path& file);
Cluster parse_cluster(const std::string& yaml, const std::string& name);
std::string to_yaml(const Cluster& cluster);

/// "10Gbit/s", "125MB/s", "1.2GiB/s", "100mbit": bytes in a second. Throws InputError otherwise.
double parse_bandwidth(const std::string& text);
/// "50us", "1.5ms", "2s".
Seconds parse_latency(const std::string& text);
/// "1.25 Gbit/s".
std::string bandwidth_to_string(double bytes_per_second);

}  // namespace convoy::plan
