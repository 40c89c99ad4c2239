// Kernels of the gated delta rule and its norm.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/recurrent/cuda/common/step_batch.h"

namespace attend::kernels::cuda {

// Input of a gate: [num_tokens, num_k_heads, ratio], or per channel [num_tokens, num_v_heads, dim_k], with
// last stride 1.
struct GateRows {
  const void* data;
  int64_t token_stride, head_stride;
};

struct DeltaParams {
  TokenRows q, k, v;
  OutRows out;
  GateRows alpha, beta;
  const float *a_log, *dt_bias;  // [num_v_heads]; per channel, dt_bias is [num_v_heads, dim_k]
  float* state;                  // [num_slots, num_v_heads, dim_v, dim_k]
  StepBatch batch;
  float beta_scale, q_scale, lower_bound;
  int32_t num_v_heads, ratio;  // ratio: value heads per key head
  int32_t dim_k, dim_v;
  Element element;  // of all inputs and of out
  // Rows of q, k and the state start at multiples of 16 bytes, and dim_k is a multiple of 4. Per channel,
  // also rows of alpha and dt_bias.
  bool aligned;
  bool chunked;  // requests with chunks are computed by the chunk form
  bool decays_per_channel;
};
// Steps all tokens of each request without chunks, and writes 0 for tokens without a request.
void launch_delta_step(const DeltaParams& params, void* stream);

struct DeltaChunkParams {
  DeltaParams delta;
  char* workspace;    // [num_slots, num_v_heads, delta_slot_bytes()]
  int32_t num_slots;  // for the chunks of any step of these sizes
};

struct GatedNormParams {
  DeviceRows x;     // one row per token and head
  DeviceRows gate;  // one row per token and group, of heads_per_group heads
  DeviceVector weight;
  float eps;
  bool sigmoid;  // sigmoid(gate) instead of silu(gate)
  int32_t num_rows, num_heads, heads_per_group, dim;
  bool aligned, weight_aligned;
};
void launch_gated_norm(const GatedNormParams& params, void* stream);

}  // namespace attend::kernels::cuda
