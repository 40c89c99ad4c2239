#include "attend/kernels/moe/cuda/sm80/lone_token_experts.cuh"

namespace attend::kernels::cuda {

void launch_lone_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  launch_lone_token_experts<__nv_bfloat16, LoneMxFp4Rows<__nv_bfloat16, 3>>(params, stream);
}

void launch_lone_token_mxfp4_mlp_bf16(const LoneTokenMlpParams& params, void* stream) {
  launch_lone_token_mlp<__nv_bfloat16, LoneMxFp4Rows<__nv_bfloat16, 3>>(params, stream);
}

}  // namespace attend::kernels::cuda
