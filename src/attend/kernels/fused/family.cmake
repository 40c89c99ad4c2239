# Operations of a model over the residual stream; each device fuses what it can.
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
