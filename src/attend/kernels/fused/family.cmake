# The operations that models speak in, over a residual stream that hides what a device fuses.
attend_kernels(fused
  HEADERS
    linear_ops.h
    norm_qkv_rope_store.h
    qkv.h
    residual.h
  SOURCES
    linear_ops.cc
    norm_qkv_rope_store.cc
    qkv.cc
    residual.cc
  CUDA
    cuda/normalized_qkv_kernel.cu
    cuda/qkv.cc
    cuda/qkv_kernel.cu)
