# Tokens of logits.
attend_kernels(sampling
  HEADERS
    sampling.h
    sampling_rule.h
  SOURCES
    sampling.cc
    cpu/sampling.cc
    cpu/sampling_avx2.cc
    cpu/sampling_avx512.cc
    cpu/sampling_portable.cc
  CUDA
    cuda/sampling.cc
    cuda/sampling_kernel.cu)
