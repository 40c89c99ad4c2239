# Pieces of a layer that a device runs as one.
attend_kernels(fused
  HEADERS
    qkv.h
  SOURCES
    qkv.cc
  CUDA
    cuda/normalized_qkv_kernel.cu
    cuda/qkv.cc
    cuda/qkv_kernel.cu)
