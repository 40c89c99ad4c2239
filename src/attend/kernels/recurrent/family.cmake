# Recurrent layers: causal convolution with state, gated delta rule, selective scan.
attend_kernels(recurrent
  HEADERS
    recurrent.h
  SOURCES
    recurrent.cc
    reference.cc
    cpu/recurrent.cc
  ISA
    "cpu/recurrent RecurrentKernels recurrent_kernels"
  CUDA
    cuda/causal_conv.cc
    cuda/gated_delta.cc
    cuda/selective_scan.cc
    cuda/common/causal_conv_kernel.cu
    cuda/common/delta_step_kernel.cu
    cuda/common/gated_norm_kernel.cu
    cuda/common/grouped_gated_norm_kernel.cu
    cuda/common/scan_step_kernel.cu
  TYPED
    "cuda/sm80/delta_channel_matrices(const DeltaChunkParams& params, void* stream)"
    "cuda/sm80/delta_channel_scan(const DeltaChunkParams& params, int slice, void* stream)"
    "cuda/sm80/delta_chunk_matrices(const DeltaChunkParams& params, void* stream)"
    "cuda/sm80/delta_chunk_scan(const DeltaChunkParams& params, int slice, void* stream)"
    "cuda/sm80/scan_chunks(const ScanParams& params, void* stream)"
  SM90_TYPED
    "cuda/sm90/delta_chunk_scan(const DeltaChunkParams& params, int slice, bool two_ctas, void* stream)"
    "cuda/sm90/delta_token(const DeltaTokenParams& params, void* stream)")
