// KvIndex: maps positions to pages of K/V. Plain structs and functions that device code can include.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

enum class KvIndexKind : uint8_t {
  kRequestRows,  // directly from ReqToTokenPool, without building a table
  kPageTable,    // [num_reqs, width] page ids
  kCsr,          // page ids of all requests, concatenated
  kContiguous,   // K/V of all requests, concatenated; no pages
};

// Position p of request r is at offset p % page_size of a page:
//   kRequestRows  slot = table[rows[r] * table_stride + round_down(p, page_size)];
//                 slot = slot_map[slot] if there is one;
//                 page = slot / page_size
//   kPageTable    page = table[r * table_stride + p / page_size]
//   kCsr          page = table[indptr[r] + p / page_size]
//   kContiguous   page = indptr[r] + p, page_size 1
// Only entries of visible positions are read: entries outside a window or past seqlen_kv may be anything.
struct KvIndex {
  KvIndexKind kind = KvIndexKind::kRequestRows;
  int32_t page_size = 1;            // power of two, 1 to 256
  const int32_t* table = nullptr;   // token slots (kRequestRows) or page ids (kPageTable, kCsr)
  int64_t table_stride = 0;         // stride between rows of `table`, in elements
  const int32_t* rows = nullptr;    // [num_reqs] kRequestRows: row of each request in `table`
  const int32_t* indptr = nullptr;  // [num_reqs + 1] kCsr: in pages; kContiguous: cu_seqlen_kv, in tokens
  // kRequestRows: slot in the pool's sliding-window half (SWA); null: identity.
  const int32_t* slot_map = nullptr;
};

// Returns log2 of a page size.
ATTEND_HOST_DEVICE inline int page_shift(int32_t page_size) {
#if defined(__CUDA_ARCH__)
  return __ffs(page_size) - 1;
#else
  return __builtin_ctz(static_cast<unsigned>(page_size));
#endif
}

// Returns the page of position `p` of request `r`, with the formulas above.
ATTEND_HOST_DEVICE inline int32_t page_of(const KvIndex& index, int r, int32_t p) {
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
#pragma GCC visibility pop
