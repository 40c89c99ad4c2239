// Pages copied from caches to host memory and back, on the CPU and on a GPU.
#include "attend/kernels/kv_store/copy_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "attend/tensor/cuda.h"
#include "tests/kernels/cuda/support/device_copy.h"

namespace attend::testing_cuda {
namespace {

using kernels::CopyDirection;
using kernels::CopyMethod;
using kernels::PageCopy;
using kernels::PagePart;
using kernels::PageTiles;

struct CopyCase {
  std::string name;
  std::vector<int64_t> part_bytes;  // of one page in each tensor
  int num_pages = 8;                // of the cache
  int num_copied = 5;
  int64_t host_gap = 0;  // bytes between two copies
};

// Widths of loads from 16 bytes to 1, parts of several tiles, and more pages than one launch copies.
const CopyCase kCopyCases[] = {
    {.name = "KeysAndValues", .part_bytes = {32768, 32768, 32768, 32768}},
    {.name = "PartsThatEndWithinATile", .part_bytes = {20000, 48, 16400}},
    {.name = "LatentRowsAndIndexKeys",
     .part_bytes = {1152, 256, 1152, 256},
     .num_pages = 600,
     .num_copied = 500},
    {.name = "EightBytes", .part_bytes = {24, 40}, .host_gap = 8},
    {.name = "FourBytes", .part_bytes = {12, 20}, .host_gap = 4},
    {.name = "TwoBytes", .part_bytes = {6, 50, 2}},
    {.name = "OneByte", .part_bytes = {1, 7, 33}},
    {.name = "AlignedPagesWithUnalignedCopies", .part_bytes = {4096, 4096}, .host_gap = 2},
    {.name = "OnePage", .part_bytes = {1 << 20, 24576}, .num_pages = 2, .num_copied = 1},
};

class CopyPages : public testing::TestWithParam<std::tuple<CopyCase, Device>> {
 protected:
  void SetUp() override {
    if (on_gpu() && cuda::device_count() == 0)
      GTEST_SKIP() << "this machine has no GPU that this build can use";
  }
  static bool on_gpu() { return std::get<1>(GetParam()).type == DeviceType::kCuda; }
};

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

TensorView view_of(const Bytes& bytes) {
  return TensorView::contiguous(const_cast<uint8_t*>(bytes.data()), DType::kU8, {std::ssize(bytes)});
}

TEST_P(CopyPages, CopyTheirBytesAndNoOthers) {
  const auto& [c, device] = GetParam();
  std::optional<cuda::OwnedStream> owned;
  if (on_gpu()) owned.emplace(device);
  Stream stream = owned ? owned->get() : Stream{};
  const auto copy = [&](const TensorView& from, const TensorView& to) {
    if (!on_gpu()) {
      std::memcpy(to.data, from.data, from.num_bytes());
      return;
    }
    cuda::copy(from, to, stream);
    cuda::synchronize(stream);
  };
  const auto allocate = [&](size_t count) {
    const auto size = static_cast<int64_t>(count);
    return on_gpu() ? cuda::empty({size}, DType::kU8, device) : Tensor::empty({size}, DType::kU8);
  };

  const auto page_bytes =
      static_cast<size_t>(std::accumulate(c.part_bytes.begin(), c.part_bytes.end(), int64_t{0}));
  const size_t host_stride = page_bytes + static_cast<size_t>(c.host_gap);
  // One allocation, so that parts of equal size are at equal distances.
  const Tensor memory = allocate(page_bytes * static_cast<size_t>(c.num_pages));
  std::vector<Bytes> expected_cache;
  std::vector<TensorView> cache;
  std::vector<PagePart> parts;
  int64_t offset = 0;
  for (const int64_t bytes : c.part_bytes) {
    expected_cache.push_back(random_bytes(static_cast<size_t>(bytes) * static_cast<size_t>(c.num_pages),
                                          static_cast<unsigned>(offset)));
    cache.push_back(memory.view().slice(0, offset * c.num_pages, (offset + bytes) * c.num_pages));
    copy(view_of(expected_cache.back()), cache.back());
    parts.push_back({.cache = static_cast<std::byte*>(cache.back().data),
                     .stride = bytes,
                     .offset = offset,
                     .num_bytes = bytes});
    offset += bytes;
  }
  const size_t host_bytes = host_stride * static_cast<size_t>(c.num_copied);
  const auto size = static_cast<int64_t>(host_bytes);
  const Tensor host =
      on_gpu() ? cuda::empty_pinned({size}, DType::kU8, device) : Tensor::empty({size}, DType::kU8);
  auto* const host_data = static_cast<uint8_t*>(host.view().data);
  Bytes expected_host;

  std::vector<int32_t> pages(static_cast<size_t>(c.num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937 generator(5);
  std::ranges::shuffle(pages, generator);
  std::vector<PageCopy> copies;
  for (int i = 0; i < c.num_copied; ++i)
    copies.push_back(
        {.page = pages[static_cast<size_t>(i)],
         .host = reinterpret_cast<std::byte*>(host_data + host_stride * static_cast<size_t>(i))});
  const PageTiles tiles(parts, device);
  // Calls change(cache, host, bytes) for each part of each copied page of the expected bytes.
  const auto for_each_part = [&](const auto& change) {
    for (size_t i = 0; i < copies.size(); ++i)
      for (size_t p = 0; p < parts.size(); ++p)
        change(expected_cache[p].data() + copies[i].page * parts[p].stride,
               expected_host.data() + host_stride * i + static_cast<size_t>(parts[p].offset),
               static_cast<size_t>(parts[p].num_bytes));
  };
  const auto expect_all = [&](const char* direction) {
    if (on_gpu()) cuda::synchronize(stream);
    EXPECT_EQ(Bytes(host_data, host_data + host_bytes), expected_host) << direction;
    for (size_t p = 0; p < cache.size(); ++p) {
      Bytes bytes(expected_cache[p].size());
      copy(cache[p], view_of(bytes));
      EXPECT_EQ(bytes, expected_cache[p]) << direction << ", part " << p;
    }
  };

  for (const auto method : {CopyMethod::kKernel, CopyMethod::kCopyEngine}) {
    SCOPED_TRACE(method == CopyMethod::kKernel ? "kernel" : "copy engine");
    const unsigned seed = 77 + 2 * static_cast<unsigned>(method);
    expected_host = random_bytes(host_bytes, seed);
    std::ranges::copy(expected_host, host_data);
    kernels::copy_pages(tiles, copies, CopyDirection::kToHost, stream, method);
    for_each_part([](uint8_t* from, uint8_t* to, size_t count) { std::memcpy(to, from, count); });
    expect_all("to the host");

    expected_host = random_bytes(host_bytes, seed + 1);
    std::ranges::copy(expected_host, host_data);
    kernels::copy_pages(tiles, copies, CopyDirection::kToCache, stream, method);
    for_each_part([](uint8_t* to, uint8_t* from, size_t count) { std::memcpy(to, from, count); });
    expect_all("to the cache");
  }
}

TEST(CopyMethodOfPages, IsTheCopyEngineForLargeParts) {
  std::vector<std::byte> memory(1 << 20);
  const auto tiles = [&](std::vector<int64_t> part_bytes) {
    std::vector<PagePart> parts;
    int64_t offset = 0;
    for (const int64_t bytes : part_bytes) {
      parts.push_back(
          {.cache = memory.data() + offset * 2, .stride = bytes, .offset = offset, .num_bytes = bytes});
      offset += bytes;
    }
    return PageTiles(parts, Device{});
  };
  // K and V of 16 tokens with 8 heads of 128 elements in 16 bits, and latent rows of one token.
  EXPECT_EQ(kernels::choose_copy_method(tiles({32768, 32768})), CopyMethod::kCopyEngine);
  EXPECT_EQ(kernels::choose_copy_method(tiles({1152, 1152})), CopyMethod::kKernel);
  EXPECT_EQ(kernels::choose_copy_method(tiles({32768, 256})), CopyMethod::kKernel);
  // One copy for parts at equal distances.
  EXPECT_EQ(tiles({32768, 32768, 32768}).rows().size(), 1u);
  EXPECT_EQ(tiles({32768, 32768, 32768}).rows()[0].count, 3);
  EXPECT_EQ(tiles({32768, 256, 256, 32768}).rows().size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Each, CopyPages,
                         testing::Combine(testing::ValuesIn(kCopyCases), testing::Values(Device{}, kGpu)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name +
                                  (std::get<1>(test.param) == kGpu ? "_gpu" : "_cpu");
                         });

}  // namespace
}  // namespace attend::testing_cuda
