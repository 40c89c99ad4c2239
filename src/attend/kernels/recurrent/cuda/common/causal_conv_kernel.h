// Parameters of the causal convolution.
#pragma once

#include "attend/kernels/common/cuda/params.h"
#include "attend/kernels/recurrent/cuda/common/step_batch.h"
#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {

struct ConvInput {
  const void* data;  // [num_tokens, groups, width], last stride 1
  int64_t token_stride, group_stride;
  int32_t width, num_channels;  // num_channels = groups * width
};

struct CausalConvParams {
  ConvInput inputs[4];
  const float* weight;  // [num_channels, num_taps]
  const float* bias;    // [num_channels]; null: none
  void* state;          // [slots, num_taps - 1, num_channels]
  void* out;            // [num_tokens, num_channels]
  int64_t out_stride;
  StepBatch batch;
  int32_t num_channels, num_taps;
  Element element;  // of inputs, state and out
  bool silu;
  bool aligned;  // 16 bytes of channels are in one input, aligned in every tensor
};
CausalConvParams causal_conv_params(const CausalConvArgs& args);
void launch_causal_conv(const CausalConvParams& params, void* stream);

}  // namespace attend::kernels::cuda
