# Mixture of experts: the router, and the experts' gated MLPs.
attend_kernels(moe
  HEADERS
    experts.h
  SOURCES
    experts.cc
    reference.cc
    route.cc
    scratch.cc
    cpu/experts.cc
    cpu/route.cc
    cuda/choose.cc
  CUDA
    cuda/moe.cc
    cuda/common/combine_kernel.cu
    cuda/common/naive_grouped_gemm.cu
    cuda/common/order_inputs_kernel.cu
    cuda/common/route_kernel.cu
    cuda/common/shared_gate_kernel.cu
    cuda/common/sort_pairs_kernel.cu
    cuda/sm80/direct_mxfp4_experts.cu
    cuda/sm80/single_token_mxfp4_experts.cu
    cuda/sm80/skinny_mxfp4_experts.cu
  TYPED
    "cuda/sm80/grouped_gemm(const GroupedGemmParams& params, int tile_rows, void* stream)"
    "cuda/sm80/single_token_experts(const SkinnyExpertsParams& params, void* stream)"
    "cuda/sm80/quantized_grouped_gemm(const GroupedGemmParams& params, int tile_rows, void* stream)"
    "cuda/sm80/skinny_experts(const SkinnyExpertsParams& params, void* stream)"
  SM90_HOST
    cuda/sm90/expert_tiles.cc
    cuda/sm90/norm_route.cc
  SM90
    cuda/sm90/gather_inputs_kernel.cu
    cuda/sm90/mxfp4_tiles.cu
  SM90_TYPED
    "cuda/sm90/expert_tiles(const ExpertTilesParams& params, int num_ctas, void* stream)"
    "cuda/sm90/norm_route(const NormRouteParams& params, void* stream)")
