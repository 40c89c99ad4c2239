// PageBytes: addresses of one kind of page data in the storage of all executors.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "attend/kv/tier/page_data.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Host memory. Data number i consists of element i of each tensor, in the order in which they were added.
class PageBytes {
 public:
  // Adds a tensor whose first dimension is the index. The elements of an index are contiguous, in any order
  // of dimensions.
  void add(const TensorView& storage);
  void add(const PageBytes& others);

  // Bytes of one index.
  size_t num_bytes() const { return num_bytes_; }
  // `to`, `from`: [num_bytes()].
  void read(int index, std::byte* to) const;
  void write(int index, const std::byte* from) const;

 private:
  struct Part {
    std::byte* base;
    size_t num_bytes;  // of one index
  };
  std::vector<Part> parts_;
  size_t num_bytes_ = 0;
};

// By PageDataKind; without parts: the model has no such data.
using CacheBytes = std::array<PageBytes, kNumPageDataKinds>;

}  // namespace attend
