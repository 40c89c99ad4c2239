#include "attend/kernels/kv_store/copy_pages.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "attend/base/error.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cuda/store.h"

namespace attend::kernels {
namespace {

constexpr uint64_t kWidestLoad = 16;  // bytes of a GPU's thread

std::vector<PagePart> make_tiles(const std::vector<PagePart>& parts) {
  std::vector<PagePart> tiles;
  for (const PagePart& part : parts) {
    require(part.num_bytes > 0, "a part of a page of ", part.num_bytes, " bytes: expected at least 1");
    for (int64_t first = 0; first < part.num_bytes; first += PageTiles::kTileBytes)
      tiles.push_back({.cache = part.cache + first,
                       .stride = part.stride,
                       .offset = part.offset + first,
                       .num_bytes = std::min(PageTiles::kTileBytes, part.num_bytes - first)});
  }
  return tiles;
}

// Groups of consecutive parts.
std::vector<PageRows> make_rows(const std::vector<PagePart>& parts) {
  constexpr int64_t kMaxPitch = int64_t{1} << 31;  // of copies in two dimensions
  std::vector<PageRows> rows;
  for (const PagePart& part : parts) {
    if (!rows.empty()) {
      PageRows& last = rows.back();
      const int64_t distance = part.cache - last.first.cache;
      const int64_t pitch = last.count == 1 ? distance : last.pitch;
      if (part.num_bytes == last.first.num_bytes && part.stride == last.first.stride &&
          part.offset == last.first.offset + last.count * part.num_bytes && pitch >= part.num_bytes &&
          pitch < kMaxPitch && distance == last.count * pitch) {
        last.pitch = pitch;
        ++last.count;
        continue;
      }
    }
    rows.push_back({.first = part, .pitch = part.num_bytes});
  }
  return rows;
}

// Below it, the copy engines' time per row exceeds that of its bytes.
constexpr int64_t kMinRowBytes = 16 << 10;

}  // namespace

CopyMethod choose_copy_method(const PageTiles& tiles) {
  return tiles.row_bytes() >= kMinRowBytes ? CopyMethod::kCopyEngine : CopyMethod::kKernel;
}

PageTiles::PageTiles(const std::vector<PagePart>& parts, Device device) : device_(device) {
  std::vector<PagePart> tiles = make_tiles(parts);
  num_tiles_ = static_cast<int>(tiles.size());
  rows_ = make_rows(parts);
  for (const PagePart& part : parts) {
    page_bytes_ += static_cast<size_t>(part.num_bytes);
    row_bytes_ = row_bytes_ == 0 ? part.num_bytes : std::min(row_bytes_, part.num_bytes);
  }
  uint64_t bits = kWidestLoad;
  for (const PagePart& tile : tiles)
    bits |= reinterpret_cast<uintptr_t>(tile.cache) | static_cast<uint64_t>(tile.stride) |
            static_cast<uint64_t>(tile.offset) | static_cast<uint64_t>(tile.num_bytes);
  alignment_ = 1 << std::countr_zero(bits);
  const auto num_bytes = static_cast<int64_t>(tiles.size() * sizeof(PagePart));
  const TensorView bytes = TensorView::contiguous(tiles.data(), DType::kU8, {num_bytes});
  if (device.type == DeviceType::kCuda && num_tiles_ > 0) {
    memory_ = attend::cuda::copy_to(bytes, device);
    return;
  }
  memory_ = Tensor::empty({num_bytes}, DType::kU8);
  if (num_tiles_ > 0) std::memcpy(memory_.view().data, tiles.data(), static_cast<size_t>(num_bytes));
}

const PagePart* PageTiles::tiles() const { return static_cast<const PagePart*>(memory_.view().data); }

void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream) {
  copy_pages(tiles, pages, direction, stream, choose_copy_method(tiles));
}

void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream,
                CopyMethod method) {
  require(stream.device == tiles.device(), "copy_pages on ", stream.device, ": the cache is on ",
          tiles.device());
  if (pages.empty() || tiles.num_tiles() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::copy_pages(tiles, pages, direction, stream, method);
  for (const PageCopy& page : pages)
    for (int i = 0; i < tiles.num_tiles(); ++i) {
      const PagePart& tile = tiles.tiles()[i];
      std::byte* const cache = tile.cache + page.page * tile.stride;
      std::byte* const host = page.host + tile.offset;
      const bool to_host = direction == CopyDirection::kToHost;
      std::memcpy(to_host ? host : cache, to_host ? cache : host, static_cast<size_t>(tile.num_bytes));
    }
}

}  // namespace attend::kernels
