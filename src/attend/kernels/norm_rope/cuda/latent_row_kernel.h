// Norm, rotation and store of a latent row: parameters and launch.
#pragma once

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

struct LatentRowParams {
  OutRows kv_a;      // [num_tokens, rank + rope_dim]; head_stride is not used
  OutRows q_rope;    // [num_tokens, num_heads, rope_dim]
  OutRows q_latent;  // [num_tokens, num_heads, latent_dim]; null: q is not rounded
  DeviceVector norm;
  const float* cos;  // [num_positions, rope_dim / 2]
  const float* sin;
  const int32_t* positions;  // [num_tokens]
  void* cache;               // [num_pages, page_size, rank + rope_dim], or scaled rows
  int64_t page_stride, token_stride;
  const int32_t* slots;     // [num_tokens]; -1: not stored
  const int32_t* slot_map;  // null: identity
  int64_t cos_stride, sin_stride;
  int32_t num_tokens, num_heads, rank, rope_dim, latent_dim, page_size;
  float eps, scale;
  bool interleaved;
  bool scaled_rows;  // strides of the cache then count bytes
  Element element, cache_element;
  int32_t heads_per_cta = 0;  // set by the launch
};
void launch_latent_row(LatentRowParams params, void* stream);

}  // namespace attend::kernels::cuda
