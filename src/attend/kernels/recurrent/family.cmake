# Recurrent layers: causal convolution with state, gated delta rule, selective scan.
attend_kernels(recurrent
  HEADERS
    causal_conv.h
    gated_delta.h
    recurrent_batch.h
    selective_scan.h
  SOURCES
    recurrent.cc
    reference.cc
    cpu/recurrent.cc
  ISA
    "cpu/recurrent RecurrentKernels recurrent_kernels"
  CUDA
    cuda/gated_delta.cc
    cuda/common/delta_step_kernel.cu
    cuda/common/gated_norm_kernel.cu)
