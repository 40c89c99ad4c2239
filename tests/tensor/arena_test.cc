#include "attend/tensor/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/error_message.h"

namespace attend {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::error_message;

TEST(Arena, AllocatesDisjointZeroedCacheLines) {
  Arena arena(1 << 20);
  std::vector<Tensor> tensors;
  for (int64_t size : {1, 63, 64, 65, 1000, 4096}) tensors.push_back(arena.allocate({size}, DType::kU8));
  const char* end = nullptr;
  for (const Tensor& tensor : tensors) {
    const View<uint8_t> bytes = tensor.span<uint8_t>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; }));
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    EXPECT_TRUE(end == nullptr || begin >= end);
    end = begin + bytes.size();
  }
}

TEST(Arena, CountsAllocationsInWholeCacheLines) {
  Arena arena(1 << 20);
  EXPECT_EQ(arena.used_bytes(), 0u);
  arena.allocate({3, 5}, DType::kF32);
  EXPECT_EQ(arena.used_bytes(), 64u);
  EXPECT_EQ(Arena::padded_bytes(60), 64u);
  arena.allocate({17}, DType::kF32);
  EXPECT_EQ(arena.used_bytes(), 64u + Arena::padded_bytes(68));
  arena.allocate({0, 8}, DType::kF32);
  EXPECT_EQ(arena.used_bytes(), 192u);
}

TEST(Arena, StartsAtAHugePageAndHasTheRequestedSize) {
  for (size_t num_bytes : {size_t{0}, size_t{1}, size_t{2} << 20, (size_t{2} << 20) + 1, size_t{9} << 20}) {
    Arena arena(num_bytes);
    EXPECT_GE(arena.size_bytes(), num_bytes);
    const Tensor first = arena.allocate({1}, DType::kU8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first.view().data) % (size_t{2} << 20), 0u) << num_bytes;
  }
}

TEST(Arena, CanBeFilledToItsLastByte) {
  Arena arena(2 << 20);
  const Tensor all = arena.allocate({static_cast<int64_t>(arena.size_bytes())}, DType::kU8);
  all.as<uint8_t>()[arena.size_bytes() - 1] = 1;
  EXPECT_EQ(arena.used_bytes(), arena.size_bytes());
}

TEST(Arena, RejectsInvalidArgumentsWithoutSideEffects) {
  Arena arena(1 << 21);
  arena.allocate({1 << 20}, DType::kU8);
  EXPECT_EQ(error_message(ErrorCode::kOutOfMemory,
                          [&] {
                            arena.allocate({512, 1025}, DType::kF32);
                          }),
            "arena: needed 2099200 bytes for float32[512, 1025] on cpu, free 1048576 of 2097152");
  EXPECT_EQ(arena.used_bytes(), size_t{1} << 20);
  arena.allocate({1 << 20}, DType::kU8);
}

TEST(Arena, RejectsMoreThanAvailableMemoryBeforeMapping) {
  const auto mapped_pages = [] {
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const size_t wanted = available_host_bytes() * 4;
  const size_t before = mapped_pages();
  const std::string message = error_message(ErrorCode::kOutOfMemory, [&] { Arena(wanted, "kv pool"); });
  EXPECT_THAT(message, AllOf(StartsWith("kv pool: needed " + std::to_string(wanted) + " bytes ("),
                             HasSubstr(" GB), free ")));
  EXPECT_LT(mapped_pages(), before + wanted / 4096 / 2);
}

TEST(Arena, NamesItsOwnerInTheErrorWhenFull) {
  Arena arena(1, "weights");
  EXPECT_THAT(error_message(ErrorCode::kOutOfMemory, [&] { arena.allocate({1 << 30}, DType::kF32); }),
              StartsWith("weights: "));
}

TEST(Arena, TensorsKeepItsMemoryAlive) {
  Tensor tensor;
  {
    Arena arena(4096);
    tensor = arena.allocate({1024}, DType::kF32);
  }
  tensor.as<float>()[1023] = 1.5f;
  EXPECT_EQ(tensor.span<float>()[1023], 1.5f);
}

TEST(AvailableHostBytes, IsLessThanTotalMemory) {
  std::ifstream file("/proc/meminfo");
  std::string key;
  size_t total_kibibytes = 0;
  ASSERT_TRUE(file >> key >> total_kibibytes);
  ASSERT_EQ(key, "MemTotal:");
  EXPECT_GT(available_host_bytes(), size_t{1} << 20);
  EXPECT_LE(available_host_bytes(), total_kibibytes * 1024);
}

}  // namespace
}  // namespace attend
