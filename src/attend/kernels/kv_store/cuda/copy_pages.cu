// Copies of pages between a cache and page-locked host memory, by copy engines or by a kernel:
//
//   tile        up to 16 KiB of one page; each CTA copies a range of consecutive tiles
//   warps       8, all alike and independent of each other
//   shared      none
//   bytes       each byte read and written once, four vectors of up to 16 bytes in flight per thread
//   bound       the link to the host: 8 CTAs have 128 KiB in flight, what a PCIe 5 link of 55 GB/s holds at a
//               latency of 2 us. More CTAs would only take SMs from other streams
//
// Copy engines copy the parts of a page that are at equal distances with one call. They leave the SMs to
// other streams, whereas the kernel's CTAs delay kernels that fill all SMs.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda {
namespace {

constexpr int kThreads = 256, kVectors = 4, kMaxCtas = 8;
// All parameters of a kernel have at most 4 KiB.
constexpr int kMaxPages = 240;

struct CopyParams {
  const PagePart* tiles;  // [num_tiles]
  int32_t num_tiles, num_pages;
  bool to_host;
  PageCopy pages[kMaxPages];
};
static_assert(sizeof(CopyParams) <= 4096);

// Accesses bypass L1, and lines in L2 are evicted first, since no kernel reads them soon.
template <class V>
__global__ void __launch_bounds__(kThreads) copy_pages_kernel(const __grid_constant__ CopyParams params) {
  const int64_t num_items = int64_t{params.num_pages} * params.num_tiles;
  const int64_t end = num_items * (blockIdx.x + 1) / gridDim.x;
  for (int64_t item = num_items * blockIdx.x / gridDim.x; item < end; ++item) {
    const PageCopy& page = params.pages[item / params.num_tiles];
    const PagePart tile = params.tiles[item % params.num_tiles];
    V* const cache = reinterpret_cast<V*>(tile.cache + page.page * tile.stride);
    V* const host = reinterpret_cast<V*>(page.host + tile.offset);
    const V* const from = params.to_host ? cache : host;
    V* const to = params.to_host ? host : cache;
    const auto count = static_cast<int>(tile.num_bytes / static_cast<int64_t>(sizeof(V)));
    for (int first = static_cast<int>(threadIdx.x); first < count; first += kThreads * kVectors) {
      V vectors[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (const int at = first + i * kThreads; at < count) vectors[i] = __ldcs(from + at);
#pragma unroll
      for (int i = 0; i < kVectors; ++i)
        if (const int at = first + i * kThreads; at < count) __stcs(to + at, vectors[i]);
    }
  }
}

template <class V>
void launch(const CopyParams& params, Stream& stream) {
  const int64_t num_items = int64_t{params.num_pages} * params.num_tiles;
  const auto num_ctas = static_cast<unsigned>(std::min<int64_t>(kMaxCtas, num_items));
  copy_pages_kernel<V><<<num_ctas, kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(params);
  attend::cuda::check(cudaGetLastError(), "copy_pages");
}

void copy_by_engine(const PageTiles& tiles, View<const PageCopy> pages, bool to_host, cudaStream_t stream) {
  for (const PageCopy& page : pages)
    for (const PageRows& rows : tiles.rows()) {
      std::byte* const cache = rows.first.cache + page.page * rows.first.stride;
      std::byte* const host = page.host + rows.first.offset;
      const auto width = static_cast<size_t>(rows.first.num_bytes), pitch = static_cast<size_t>(rows.pitch);
      attend::cuda::check(
          cudaMemcpy2DAsync(to_host ? host : cache, to_host ? width : pitch, to_host ? cache : host,
                            to_host ? pitch : width, width, static_cast<size_t>(rows.count),
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
          "copy_pages");
    }
}

}  // namespace

void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream,
                CopyMethod method) {
  if (method == CopyMethod::kCopyEngine)
    return copy_by_engine(tiles, pages, direction == CopyDirection::kToHost,
                          static_cast<cudaStream_t>(stream.handle));
  auto bits = static_cast<uint64_t>(tiles.alignment());
  for (const PageCopy& page : pages) bits |= reinterpret_cast<uintptr_t>(page.host);
  const int alignment = 1 << std::countr_zero(bits);
  CopyParams params{.tiles = tiles.tiles(),
                    .num_tiles = tiles.num_tiles(),
                    .num_pages = 0,
                    .to_host = direction == CopyDirection::kToHost,
                    .pages = {}};
  while (!pages.empty()) {
    const size_t count = std::min(pages.size(), size_t{kMaxPages});
    std::copy_n(pages.begin(), count, params.pages);
    params.num_pages = static_cast<int32_t>(count);
    switch (alignment) {
      case 16:
        launch<uint4>(params, stream);
        break;
      case 8:
        launch<uint2>(params, stream);
        break;
      case 4:
        launch<uint32_t>(params, stream);
        break;
      case 2:
        launch<uint16_t>(params, stream);
        break;
      default:
        launch<uint8_t>(params, stream);
        break;
    }
    pages = pages.subspan(count);
  }
}

}  // namespace attend::kernels::cuda
