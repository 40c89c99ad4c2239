// The plan of a step, derived on the device.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

struct PlanParams {
  BatchParams batch;
  int32_t group;  // query heads per KV head
  int32_t num_kv_heads;
  PlanView plan;            // its header, row tiles and starts are written
  int32_t* first_row_tile;  // [num_reqs + 1] scratch
};

// One CTA. `stream` is a cudaStream_t. Throws Error(kDevice) when the launch fails.
void launch_plan(const PlanParams& params, void* stream);

}  // namespace attend::kernels::cuda
