// Copies of pages between caches and host memory, for tiers of a prefix cache below its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"

namespace attend::kernels {

// Part of a page: its bytes in one tensor of a cache. Page i is at cache + i * stride.
struct PagePart {
  std::byte* cache = nullptr;
  int64_t stride = 0;     // bytes
  int64_t offset = 0;     // of the part in a copy of the page
  int64_t num_bytes = 0;  // of the part
};

// Page of a cache, and its copy in host memory: all parts, one after another.
struct PageCopy {
  int32_t page = 0;
  std::byte* host = nullptr;
};

enum class CopyDirection : uint8_t { kToHost, kToCache };

// Parts of a page at equal distances: part i is at cache + i * pitch, and in a copy of the page they are
// adjacent.
struct PageRows {
  PagePart first;
  int64_t pitch = 0;
  int count = 1;
};

// Parts of the pages of a cache, as copy_pages() reads them: as tiles of at most kTileBytes in the memory of
// the cache's device, and as rows.
class PageTiles {
 public:
  static constexpr int64_t kTileBytes = 16 << 10;

  // Throws Error(kInvalidArgument) for parts without bytes, and Error(kOutOfMemory).
  PageTiles(const std::vector<PagePart>& parts, Device device);

  Device device() const { return device_; }
  int num_tiles() const { return num_tiles_; }
  // [num_tiles()] on the device.
  const PagePart* tiles() const;
  // Largest power of two, at most 16, that divides all addresses in the cache, offsets and sizes.
  int alignment() const { return alignment_; }
  const std::vector<PageRows>& rows() const { return rows_; }
  int64_t row_bytes() const { return row_bytes_; }  // of the smallest part
  size_t page_bytes() const { return page_bytes_; }

 private:
  Device device_;
  std::vector<PageRows> rows_;
  int64_t row_bytes_ = 0;
  size_t page_bytes_ = 0;
  Tensor memory_;
  int num_tiles_ = 0;
  int alignment_ = 1;
};

// Hardware that copies the pages of a GPU: its copy engines, which leave all SMs to other streams but need a
// time for each row; or a kernel of few CTAs.
enum class CopyMethod : uint8_t { kCopyEngine, kKernel };
// Returns the method for a cache: copy engines if the parts of its pages are large.
CopyMethod choose_copy_method(const PageTiles& tiles);

// Copies pages from a cache to host memory, or back. No page of the cache and no copy may occur twice. On a
// GPU the host memory is page-locked. `method`: GPUs.
void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream,
                CopyMethod method);
// With choose_copy_method().
void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream);

}  // namespace attend::kernels
