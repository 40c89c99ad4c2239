# The operations that models speak in, over a residual stream that hides what a device fuses.
attend_kernels(fused
  HEADERS
    operations.h
  SOURCES
    linear_ops.cc
    moe_add.cc
    norm_qkv_rope_store.cc
    residual.cc
    vocab_ops.cc
  CUDA
    cuda/normalized_qkv_kernel.cu
    cuda/qkv.cc
    cuda/qkv_quantized_kernel.cu
    cuda/qkv_kernel.cu)
