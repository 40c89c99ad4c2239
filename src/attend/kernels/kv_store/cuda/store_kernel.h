// Stores of new rows into a paged cache.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cuda {

// Rows [num_tokens, num_heads, head_dim] for a cache [num_pages, page_size, num_heads, first_column onwards].
struct StoreRows {
  TokenRows from;
  void* to;
  int64_t page_stride, token_stride, head_stride;
  int32_t head_dim;
  int32_t first_column;  // first column in the cache row
  float scale;           // stored values are x / scale
  Element from_element, to_element;
};

// Up to two kinds of rows with the same slots: K and V, or a latent row and its rope part.
struct StoreParams {
  StoreRows rows[2];
  const int32_t* slots;     // [num_tokens]; -1: not stored
  const int32_t* slot_map;  // null: identity
  int32_t num_tokens, num_heads;
  int32_t page_size;
};

void launch_store(const StoreParams& params, void* stream);
// Stores latent rows and their rope parts as scaled rows; the strides of `to` count bytes.
void launch_store_scaled(const StoreParams& params, void* stream);

// Kernel parameters of a store.

// Throws Error(kInvalidArgument) for a tensor that is not on the stream's device.
StoreParams store_params(const StoreKvArgs& args, const Stream& stream);

}  // namespace attend::kernels::cuda
