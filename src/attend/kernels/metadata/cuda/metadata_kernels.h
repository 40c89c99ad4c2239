// Kernels that derive the metadata of a step on the device.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// See RequestRows of metadata.h.
struct RequestRowsParams {
  const int32_t* table;  // [num_rows, stride]
  int64_t stride;
  const int32_t* rows;       // [num_reqs]
  const int32_t* seqlen_kv;  // [num_reqs]
  const int32_t* slot_map;   // null: no translation
  int32_t num_reqs;
};

// Page ids of request r start at pages[r * width], or at pages[indptr[r]], where indptr is an output too.
struct PagesParams {
  RequestRowsParams requests;
  int32_t page_size;
  int32_t* pages;
  int64_t width;    // width of a page table
  int32_t* indptr;  // [num_reqs + 1]; null: a page table
};
void launch_pages(const PagesParams& params, void* stream);

// table[rows[r] * stride + positions[t]] = slots[t] for the tokens t of request r, and slot_map[slots[t]] =
// swa_slots[t]; slots of -1 are skipped.
struct NewSlotsParams {
  int32_t* table;
  int64_t stride;
  const int32_t* rows;         // [num_reqs]
  const int32_t* cu_seqlen_q;  // [num_reqs + 1]
  const int32_t* positions;    // [num_tokens]
  const int32_t* slots;        // [num_tokens]
  const int32_t* swa_slots;    // [num_tokens]
  int32_t* slot_map;           // null: none
  int32_t num_reqs;
};
void launch_new_slots(const NewSlotsParams& params, void* stream);

}  // namespace attend::kernels::cuda
