// find_page(): the page of a position, by a KvIndex, on either device.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"
#include "attend/kernels/metadata/kv_index.h"

namespace attend::kernels {

// Returns log2 of a page size.
ATTEND_HOST_DEVICE inline int page_shift(int32_t page_size) {
#if defined(__CUDA_ARCH__)
  return __ffs(page_size) - 1;
#else
  return __builtin_ctz(static_cast<unsigned>(page_size));
#endif
}

// Returns the page of position `p` of request `r`, with the formulas above.
ATTEND_HOST_DEVICE inline int32_t find_page(const KvIndex& index, int r, int32_t p) {
  switch (index.kind) {
    case KvIndexKind::kRequestRows: {
      const int32_t first = p & ~(index.page_size - 1);
      int32_t slot = index.table[index.rows[r] * index.table_stride + first];
      if (index.slot_map != nullptr) slot = index.slot_map[slot];
      return slot >> page_shift(index.page_size);
    }
    case KvIndexKind::kPageTable:
      return index.table[r * index.table_stride + (p >> page_shift(index.page_size))];
    case KvIndexKind::kCsr:
      return index.table[index.indptr[r] + (p >> page_shift(index.page_size))];
    case KvIndexKind::kContiguous:
      return index.indptr[r] + p;
  }
  return 0;
}

}  // namespace attend::kernels
