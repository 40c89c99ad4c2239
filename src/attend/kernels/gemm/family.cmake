# Dense layers.
attend_kernels(gemm
  HEADERS
    linear.h
  SOURCES
    linear.cc
    cpu/linear.cc
    cpu/linear_amx.cc
    cpu/linear_avx2.cc
    cpu/linear_avx512.cc
    cpu/linear_portable.cc
    cuda/choose.cc
    cuda/sm90/tall_shape.cc
  CUDA
    cuda/cublaslt.cc
    cuda/linear.cc
    cuda/matmul.cc
    cuda/common/naive_gemm.cu
    cuda/sm80/few_rows.cc
    cuda/sm80/skinny_gemm_bf16.cu
    cuda/sm80/skinny_gemm_f16.cu
    cuda/sm80/batch_invariant_gemm_bf16.cu
    cuda/sm80/batch_invariant_gemm_f16.cu
  SM90_HOST
    cuda/sm90/dense.cc
    cuda/sm90/row_tiles.cc
    cuda/sm90/tall.cc
  SM90
    cuda/sm90/swap_ab_gemm_bf16.cu
    cuda/sm90/swap_ab_gemm_f16.cu
    cuda/sm90/batch_invariant_gemm_bf16.cu
    cuda/sm90/batch_invariant_gemm_f16.cu
    cuda/sm90/gated_mlp_gemm_bf16.cu
    cuda/sm90/gated_mlp_gemm_f16.cu)

if(ATTEND_CUDA)
  # cuBLASLt is loaded when the first dense layer runs on a GPU: where the loader looks, then here.
  set_source_files_properties(gemm/cuda/cublaslt.cc PROPERTIES COMPILE_DEFINITIONS
    "ATTEND_CUDA_LIBRARY_DIR=\"${CUDAToolkit_LIBRARY_DIR}\"")
endif()
