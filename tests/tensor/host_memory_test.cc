#include "attend/tensor/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

namespace attend {
namespace {

class CgroupMemory : public testing::Test {
 protected:
  ~CgroupMemory() override { std::filesystem::remove_all(root_); }

  void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << '\n';
  }

  const std::filesystem::path root_ = std::filesystem::path(testing::TempDir()) / "attend_cgroups";
};

TEST_F(CgroupMemory, IsTheFreeMemoryOfTheTightestGroup) {
  write("outer/memory.max", "1000");
  write("outer/memory.current", "400");
  write("outer/inner/memory.max", "5000");
  write("outer/inner/memory.current", "300");
  EXPECT_EQ(cgroup_memory_left(root_, "/outer/inner", kCgroup2), 600u);
  write("outer/inner/memory.max", "350");
  EXPECT_EQ(cgroup_memory_left(root_, "/outer/inner", kCgroup2), 50u);
  EXPECT_EQ(cgroup_memory_left(root_, "/outer", kCgroup2), 600u);
}

TEST_F(CgroupMemory, CountsPageCacheAsFree) {
  write("memory.max", "1000");
  write("memory.current", "900");
  write("memory.stat", "anon 200\nactive_file 300\ninactive_file 400");
  EXPECT_EQ(cgroup_memory_left(root_, "/", kCgroup2), 800u);
}

TEST_F(CgroupMemory, ReadsCgroupV1) {
  write("job/memory.limit_in_bytes", "1000");
  write("job/memory.usage_in_bytes", "900");
  write("job/memory.stat", "cache 700\ntotal_active_file 300\ntotal_inactive_file 100");
  EXPECT_EQ(cgroup_memory_left(root_, "/job", kCgroup1), 500u);
}

TEST_F(CgroupMemory, IsUnlimitedWithoutALimit) {
  write("memory.max", "max");
  EXPECT_EQ(cgroup_memory_left(root_, "/not/there", kCgroup2), kNoMemoryLimit);
}

TEST(RlimitMemory, IsTheFreeAddressSpace) {
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "ulimit -v is set";
  EXPECT_GT(rlimit_memory_left(), size_t{1} << 40);
  const rlimit low{.rlim_cur = size_t{1} << 30, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_AS, &low);
  const size_t left = rlimit_memory_left();
  setrlimit(RLIMIT_AS, &before);
  EXPECT_LT(left, size_t{1} << 30);
}

}  // namespace
}  // namespace attend
