# Linear layers.
attend_kernels(gemm
  HEADERS
    linear.h
    low_rank.h
    low_rank_arrays.h
  SOURCES
    head_linear.cc
    linear.cc
    low_rank.cc
    weights.cc
    cpu/head_linear.cc
    cpu/linear.cc
    cpu/linear_amx.cc
    cpu/linear_avx512bf16.cc
    cpu/low_rank.cc
    cpu/int8/int8_linear.cc
    cpu/int8/int8_linear_avx2.cc
    cpu/int8/int8_linear_avx512bf16.cc
    cpu/int8/int8_linear_portable.cc
    cuda/choose.cc
    cuda/low_rank_table.cc
    cuda/sm90/batch_invariant/batch_invariant_gemm_shape.cc
    cuda/sm90/gated_mlp/gated_mlp_gemm_shape.cc
  ISA
    "cpu/head_linear MultiplyTransposed multiply_transposed"
    "cpu/linear LinearKernel linear_kernel cpu/quantized_values"
  CUDA
    cuda/cublaslt.cc
    cuda/fp8_linear.cc
    cuda/head_linear.cc
    cuda/linear.cc
    cuda/low_rank.cc
    cuda/matmul.cc
    cuda/quantized_linear.cc
    cuda/quantized_weight.cc
    cuda/common/head_linear_kernel.cu
    cuda/common/low_rank_f32.cu
    cuda/common/naive_gemm.cu
    cuda/common/round_rows.cu
    cuda/common/dequantize_weight.cu
    cuda/sm80/skinny_gemm.cc
  TYPED
    "cuda/sm80/batch_invariant_gemm(const BatchInvariantGemmParams& params, void* stream)"
    "cuda/sm80/head_gemm(const HeadLinearParams& params, void* stream)"
    "cuda/sm80/low_rank_expand(const LowRankExpandParams& params, int grid_x, int grid_y, void* stream)"
    "cuda/sm80/low_rank_gate(const LowRankGateParams& params, int grid_x, int grid_y, void* stream)"
    "cuda/sm80/low_rank_shrink(const LowRankShrinkParams& params, int num_ctas, void* stream)"
    "cuda/sm80/quantized_gemm(const QuantizedGemmParams& params, void* stream)"
    "cuda/sm80/skinny_quantized(const SkinnyQuantizedParams& params, void* stream)"
    "cuda/sm80/skinny_gemm(const SkinnyGemmParams& params, void* stream)"
  SM90_HOST
    cuda/sm90/swap_ab/swap_ab_gemm.cc
    cuda/sm90/batch_invariant/batch_invariant_gemm.cc
    cuda/sm90/fp8_block/fp8_block_gemm.cc
    cuda/sm90/gated_mlp/gated_mlp_gemm.cc
    cuda/sm90/gemv/gemv.cc
  SM90
    cuda/sm90/swap_ab/swap_ab_gemm_bf16.cu
    cuda/sm90/swap_ab/swap_ab_gemm_f16.cu
  SM90_TYPED
    "cuda/sm90/batch_invariant/batch_invariant_gemm(const BatchInvariantGemmParams& params, const BatchInvariantGemmShape& shape, void* stream)"
    "cuda/sm90/fp8_block/fp8_block_gemm(const Fp8BlockGemmParams& params, int tile_rows, int num_sms, void* stream)"
    "cuda/sm90/gated_mlp/gated_mlp_gemm(const GatedMlpGemmParams& params, const GatedMlpGemmShape& shape, void* stream)"
    "cuda/sm90/gemv/gemv(const GemvParams& params, void* stream)"
    "cuda/sm90/swap_ab/scaled_quantized(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape, void* stream)"
    "cuda/sm90/swap_ab/swap_ab_quantized(const SwapAbQuantizedParams& params, const SwapAbGemmShape& shape, void* stream)")

if(ATTEND_CUDA)
  # cuBLASLt is loaded when the first linear layer runs on a GPU: from the search path of the loader, then from here.
  set_source_files_properties(gemm/cuda/cublaslt.cc PROPERTIES COMPILE_DEFINITIONS
    "ATTEND_CUDA_LIBRARY_DIR=\"${CUDAToolkit_LIBRARY_DIR}\"")
endif()
