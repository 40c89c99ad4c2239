# Recurrent layers: causal convolution with state, gated delta rule.
attend_kernels(recurrent
  HEADERS
    causal_conv.h
    gated_delta.h
    recurrent_batch.h
  SOURCES
    recurrent.cc
    reference.cc
    cpu/recurrent.cc
  ISA
    "cpu/recurrent RecurrentKernels recurrent_kernels")
