// Descriptions of clusters: read, written, refused.

#include "convoy/plan/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/base/error.hpp"

namespace convoy::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLab = R"(name: lab
nodes:
- {name: old, count: 3, cores: 8, gflops: 250, memory: 16GiB, link: {latency: 60us, bandwidth: 1Gbit/s}}
- {name: new, count: 2, cores: 16, gflops: 900, memory: 64GiB, link: {bandwidth: 10Gbit/s}}
)";

std::string refusal(const std::string& yaml) {
  try {
    parse_cluster(yaml, "c.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ClusterDescription, IsReadAndWritten) {
  const Cluster lab = parse_cluster(kLab, "lab.yaml");
  EXPECT_EQ(lab.size(), 5);
  EXPECT_EQ(lab.nodes[0].memory.value, int64_t{16} << 30);
  EXPECT_DOUBLE_EQ(lab.nodes[0].link.bandwidth, 125e6);
  EXPECT_DOUBLE_EQ(lab.nodes[0].link.latency.value, 60e-6);
  EXPECT_TRUE(parse_cluster(to_yaml(lab), "again") == lab) << to_yaml(lab);
}

TEST(ClusterDescription, UsesTheFastestNodesFirst) {
  const Cluster lab = parse_cluster(kLab, "lab.yaml");
  const auto three = lab.fastest(3);
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(three[0]->name, "new");
  EXPECT_EQ(three[1]->name, "new");
  EXPECT_EQ(three[2]->name, "old");
  EXPECT_DOUBLE_EQ(lab.link(lab.fastest(2)).per_byte.value, 8 / 10e9);
  EXPECT_DOUBLE_EQ(lab.link(three).per_byte.value, 8 / 1e9);
  EXPECT_DOUBLE_EQ(lab.link(three).latency.value, 60e-6);
}

TEST(ClusterDescription, KnowsWhatLongMessagesAndSingleConnectionsDo) {
  const Cluster lab = parse_cluster(
      "nodes: [{link: {bandwidth: 100MB/s, connection: 40MB/s, longest: 64KiB, long_bandwidth: "
      "50MB/s}}]\n",
      "lab.yaml");
  EXPECT_TRUE(parse_cluster(to_yaml(lab), "again") == lab) << to_yaml(lab);
  const comm::LinkSpeed link = lab.link(lab.fastest(1));
  EXPECT_DOUBLE_EQ(link.transfer(1e6, 1000).value, 0.01);
  EXPECT_DOUBLE_EQ(link.transfer(1e6, 1e6).value, 0.02);
  EXPECT_DOUBLE_EQ(link.transfer_to_one(1e6, 1000).value, 0.025);
}

TEST(ClusterDescription, KnowsWhatLanesAndLinkLeaveEachOther) {
  const Cluster lab =
      parse_cluster("nodes: [{link: {beside_lanes: 0.8, lanes_left: 0.7}}]\n", "lab.yaml");
  EXPECT_DOUBLE_EQ(lab.nodes[0].link.beside_lanes, 0.8);
  EXPECT_DOUBLE_EQ(lab.nodes[0].link.lanes_left, 0.7);
  EXPECT_TRUE(parse_cluster(to_yaml(lab), "again") == lab) << to_yaml(lab);
  EXPECT_THAT(refusal("nodes:\n- {link: {lanes_left: 1.5}}"),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("at most 1")));
}

TEST(ClusterDescription, HasSeveralWorkersOnANode) {
  const Cluster lab = parse_cluster(
      "nodes:\n- {name: wide, count: 2, workers: 4, cores: 32, gflops: 800}\n"
      "- {name: narrow, gflops: 300}\n",
      "lab.yaml");
  EXPECT_EQ(lab.size(), 9);
  EXPECT_EQ(lab.fastest(1)[0]->name, "narrow") << "300 for a worker against 200";
  EXPECT_TRUE(parse_cluster(to_yaml(lab), "again") == lab) << to_yaml(lab);
}

TEST(ClusterDescription, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(refusal("nodes:\n- {name: a, cuont: 3}\n"),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("no key 'cuont'"), HasSubstr("count")));
  EXPECT_THAT(refusal("nodes:\n- {name: a, count: 0}\n"), HasSubstr("at least 1"));
  EXPECT_THAT(refusal("nodes:\n- {name: a, link: {bandwidth: fast}}\n"),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("bandwidth"), HasSubstr("1Gbit/s")));
  EXPECT_THAT(refusal("nodes: []\n"), HasSubstr("has nodes"));
  EXPECT_THAT(refusal("nodes: [{gflops: 3}, {speed: 2}]\n"), HasSubstr("either all"));
  EXPECT_THAT(refusal("nodes: {"), HasSubstr("c.yaml"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("a map"));
}

TEST(Bandwidth, IsReadWithItsUnit) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("1Gbit/s"), 125e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100mbit"), 12.5e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("6.8 GB/s"), 6.8e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1GiB/s"), 1073741824.0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("8bit/s"), 1);
  EXPECT_EQ(bandwidth_to_string(125e6), "1 Gbit/s");
  for (const char* wrong :
       {"fast", "3 parsec", "-1Gbit/s", "0MB/s", "10Gb its", "", "10Gb/s", "10gb"}) {
    EXPECT_THROW(parse_bandwidth(wrong), InputError) << wrong;
  }
}

TEST(Latency, IsReadWithItsUnit) {
  EXPECT_DOUBLE_EQ(parse_latency("50us").value, 50e-6);
  EXPECT_DOUBLE_EQ(parse_latency("1.5ms").value, 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_latency("2s").value, 2);
  EXPECT_THROW(parse_latency("2 hours"), InputError);
}

}  // namespace
}  // namespace convoy::plan
