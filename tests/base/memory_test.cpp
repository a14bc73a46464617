#include "convoy/base/memory.hpp"

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include "convoy/base/cgroup.hpp"
#include "convoy/base/error.hpp"

namespace convoy {
namespace {

namespace fs = std::filesystem;

// A made-up root of a file system.
class Root : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) / (std::string("convoy_root_") + test->name());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};
using Cgroup = Root;
using MemoryFiles = Root;

TEST_F(Cgroup, GrantsEverythingWhereThereIsNone) {
  EXPECT_FALSE(cgroup::cpu_quota(root_));
  EXPECT_FALSE(cgroup::memory_left(root_));
}

TEST_F(Cgroup, Version2CountsTheTightestLevel) {
  put("proc/self/cgroup", "0::/slice/job\n");
  put("sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(cgroup::cpu_quota(root_).value(), 1.5);
  put("sys/fs/cgroup/slice/job/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(cgroup::cpu_quota(root_).value(), 0.5);
}

TEST_F(Cgroup, Version2MemoryDoesNotCountDroppableCache) {
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "1000000\n");
  put("sys/fs/cgroup/job/memory.current", "700000\n");
  put("sys/fs/cgroup/job/memory.stat", "anon 400000\nfile 300000\ninactive_file 250000\n");
  EXPECT_EQ(cgroup::memory_left(root_).value().value, 550000);
  put("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_FALSE(cgroup::memory_left(root_));
}

TEST_F(Cgroup, Version1FindsItsControllersAmongOthers) {
  put("proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/host/path/not/seen/here\n3:memory:/job\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096\n");
  put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8192\n");
  EXPECT_DOUBLE_EQ(cgroup::cpu_quota(root_).value(), 3.0);
  EXPECT_EQ(cgroup::memory_left(root_).value().value, 0);
}

TEST_F(Cgroup, Version1WithoutQuotaIsUnlimited) {
  put("proc/self/cgroup", "4:cpu:/\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cgroup::cpu_quota(root_));
}

TEST_F(Cgroup, GarbageIsNoLimitAndPathsDoNotLeaveTheMount) {
  put("proc/self/cgroup", "nonsense\n0::/../../..\n");
  put("cpu.max", "100 100\n");
  put("sys/fs/cgroup/cpu.max", "lots\n");
  put("sys/fs/cgroup/memory.max", "12x\n");
  EXPECT_FALSE(cgroup::cpu_quota(root_));
  EXPECT_FALSE(cgroup::memory_left(root_));
}

TEST_F(MemoryFiles, AvailableIsTheLesserOfMachineAndGroup) {
  put("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:    2000 kB\n");
  EXPECT_EQ(available_memory(root_).value, 2000 * 1024);
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "100000\n");
  put("sys/fs/cgroup/memory.current", "40000\n");
  EXPECT_EQ(available_memory(root_).value, 60000);
}

TEST(Memory, OfThisProcessIsPlausible) {
  EXPECT_GT(available_memory().value, 0);
  EXPECT_GT(resident_memory().value, 1 << 20);
  EXPECT_GE(peak_resident_memory(), resident_memory());
}

TEST(AlignedBuffer, IsZeroedAndAlignedAtEverySize) {
  for (const int64_t size : {1, 63, 64, 4096, (4 << 20) - 1, 4 << 20, (6 << 20) + 12}) {
    AlignedBuffer buffer(Bytes{size});
    ASSERT_EQ(buffer.size().value, size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes().data()) % AlignedBuffer::kAlignment, 0U);
    EXPECT_TRUE(std::all_of(buffer.bytes().begin(), buffer.bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    buffer.bytes().back() = std::byte{1};
  }
}

TEST(AlignedBuffer, EmptyHasNoBytes) {
  EXPECT_TRUE(AlignedBuffer().empty());
  EXPECT_TRUE(AlignedBuffer(Bytes{0}).floats().empty());
}

TEST(AlignedBuffer, TakesWholeCacheLinesOrWholeHugePages) {
  EXPECT_EQ(AlignedBuffer::taken(Bytes{0}), Bytes{0});
  EXPECT_EQ(AlignedBuffer::taken(Bytes{65}), Bytes{128});
  EXPECT_EQ(AlignedBuffer::taken(Bytes{(4 << 20) + 1}), Bytes{6 << 20});
}

TEST(AlignedBuffer, MovesItsBlock) {
  for (const int64_t count : {int64_t{10}, int64_t{2} << 20}) {
    AlignedBuffer first = AlignedBuffer::of_floats(count);
    first.floats()[9] = 3;
    const float* where = first.floats().data();
    AlignedBuffer second(std::move(first));
    AlignedBuffer third = AlignedBuffer::of_floats(5);
    third = std::move(second);
    EXPECT_EQ(third.floats().data(), where);
    EXPECT_EQ(third.floats().size(), static_cast<size_t>(count));
    EXPECT_EQ(third.floats()[9], 3);
  }
}

TEST(AlignedBuffer, SaysHowMuchCouldNotBeHad) {
  try {
    const AlignedBuffer buffer(Bytes{int64_t{1} << 60});
    FAIL() << "an exbibyte was allocated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("TiB"), std::string::npos) << error.what();
  }
}

TEST(AlignedBuffer, TakesMemoryOnlyWhenTouched) {
  const int64_t before = resident_memory().value;
  const AlignedBuffer buffer(Bytes{int64_t{1} << 30});
  EXPECT_LT(resident_memory().value - before, 64 << 20);
}

}  // namespace
}  // namespace convoy
