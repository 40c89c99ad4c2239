// Kernel that derives the plan of a step.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"

namespace attend::kernels::cuda {

struct PlanParams {
  BatchParams batch;
  int32_t group;  // query heads per KV head
  int32_t num_kv_heads;
  PlanView plan;            // header, row tiles and starts are outputs
  int32_t* first_row_tile;  // [num_reqs + 1] scratch
};

// Launches one CTA. `stream` is a cudaStream_t. Throws Error(kDevice) if the launch fails.
void launch_plan(const PlanParams& params, void* stream);

}  // namespace attend::kernels::cuda
