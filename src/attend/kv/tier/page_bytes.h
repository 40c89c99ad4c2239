// PageBytes: addresses of one kind of page data in the storage of all executors.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "attend/kernels/kv_store/copy_pages.h"
#include "attend/kv/tier/page_data.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Data number i consists of element i of each tensor, in the order in which they were added. All tensors are
// on one device.
class PageBytes {
 public:
  // Adds a tensor whose first dimension is the index. The elements of an index are contiguous, in any order
  // of dimensions.
  void add(const TensorView& storage);
  void add(const PageBytes& others);

  // Bytes of one index.
  size_t num_bytes() const { return num_bytes_; }
  Device device() const { return device_; }
  const std::vector<kernels::PagePart>& parts() const { return parts_; }

 private:
  void add(kernels::PagePart part, Device device);

  Device device_;
  std::vector<kernels::PagePart> parts_;
  size_t num_bytes_ = 0;
};

// By PageDataKind; without parts: the model has no such data.
using CacheBytes = std::array<PageBytes, kNumPageDataKinds>;

}  // namespace attend
