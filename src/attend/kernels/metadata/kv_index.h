// KvIndex: maps positions to their K/V in memory. Lengths: tokens of each request.
//
// All pointers refer to memory of the device that runs the kernel. The structs are plain and the header
// includes no others, so that device code can include it and kernels receive the structs by value.
#pragma once

#include <cstdint>

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

// Lengths of num_reqs requests: differences of `cu`; or `per_request`; or, without either, `uniform` for
// every request.
struct Lengths {
  const int32_t* cu = nullptr;           // [num_reqs + 1]
  const int32_t* per_request = nullptr;  // [num_reqs]
  int32_t uniform = 0;
};

}  // namespace attend::kernels
#pragma GCC visibility pop
