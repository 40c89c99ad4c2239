// Kernels of the selective scan and its norm.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/recurrent/cuda/common/step_batch.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {

struct ScanParams {
  TokenRows x, b, c;  // [num_tokens, num_heads, head_dim]; [num_tokens, groups, state_dim]
  OutRows out;
  const void* dt;  // [num_tokens, num_heads]
  int64_t dt_stride;
  const float *a_log, *d, *dt_bias;  // [num_heads]
  float* state;                      // [num_slots, num_heads, head_dim, state_dim]
  StepBatch batch;
  float min_step, max_step;
  int32_t num_heads, heads_per_group, head_dim, state_dim;
  int32_t max_tokens;  // requests with more new tokens are skipped: another kernel scans them
  Element element;     // of all inputs and of out
  bool aligned;        // rows of b and c start at multiples of 16 bytes
};
// Steps each request through its tokens, and writes 0 for tokens of padding.
void launch_scan_step(const ScanParams& params, void* stream);

struct GroupedGatedNormParams {
  DeviceRows x, gate;  // a row per token and group of features
  DeviceRows weight;   // a row per group; the outer stride is not used
  float eps;
  int32_t num_rows, num_groups, dim;  // num_groups: groups of a token
  int32_t row_threads = 0;            // set by the launch
  GateOrder order;
  bool aligned;
};
void launch_grouped_gated_norm(const GroupedGatedNormParams& params, void* stream);

}  // namespace attend::kernels::cuda
