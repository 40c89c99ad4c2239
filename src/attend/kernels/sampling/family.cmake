# Sampling of tokens from logits, logit edits, log-probabilities.
attend_kernels(sampling
  HEADERS
    sampling.h
  SOURCES
    edit_logits.cc
    sampling.cc
    cpu/edit_logits.cc
    cpu/logprobs.cc
    cpu/sampling.cc
  ISA
    "cpu/sampling SamplingKernels sampling_kernels"
  CUDA
    cuda/edit_logits.cc
    cuda/edit_logits_kernel.cu
    cuda/map_ids_kernel.cu
    cuda/sampling.cc
    cuda/sampling_kernel.cu)
