# softmax(q k^T) v over paged or contiguous K/V, MLA, and the merge of partial results.
attend_kernels(attention
  HEADERS
    attention.h
    attention_batch.h
    attention_plan.h
  SOURCES
    attention.cc
    attention_plan.cc
    check.cc
    make_work.cc
    reference.cc
    reference_merge.cc
    reference_mask.cc
    unmasked_keys.cc
    cpu/attention.cc
    cpu/attention_amx.cc
    cpu/attention_avx2.cc
    cpu/attention_avx512.cc
    cpu/attention_avx512bf16.cc
    cpu/attention_portable.cc
    cpu/attention_problem.cc
    cpu/merge.cc
    cpu/tile_rows.cc
    cpu/tile_scratch.cc
    cuda/choose.cc
    cuda/choose_plan.cc
    cuda/common/plan/paged_row_strides.cc
  CUDA
    cuda/attention.cc
    cuda/common/plan/device_plan.cc
    cuda/merge.cc
    cuda/plan.cc
    cuda/common/merge_kernel.cu
    cuda/common/plan/plan_kernel.cu
    cuda/sm80/merge_partials.cu
    cuda/sm80/mla.cu
    cuda/sm80/row_attention.cu
    cuda/sm80/scaled_mla.cu
    cuda/sm80/wide_tiles.cu
  SM90_HOST
    cuda/sm90/mla/mla.cc
    cuda/sm90/decode/single_request_decode.cc
    cuda/sm90/prefill/prefill.cc
    cuda/sm90/wide_decode/wide_decode.cc
  SM90
    cuda/sm90/mla/mla_merge.cu
  SM90_TYPED
    "cuda/sm90/mla/mla(const MlaParams& params, int num_ctas, void* stream)"
    "cuda/sm90/wide_decode/wide_decode(const WideDecodeParams& params, int num_ctas, void* stream)")

if(ATTEND_CUDA)
  set(instances_are_sampled false)
  if(ATTEND_SAMPLE_KERNELS)
    set(instances_are_sampled true)
  endif()
  include(attention/cuda/sm80/instances.cmake)
  if(attend_has_sm90a)
    include(attention/cuda/sm90/instances.cmake)
  endif()
endif()
