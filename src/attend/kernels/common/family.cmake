# Code shared by several families.
attend_kernels(common
  HEADERS
    build_info.h
  SOURCES
    build_info.cc
    check_view.cc
    decode_blocks.cc
    element.cc
    fill_random.cc
    kernel_choices.cc
    cpu/isa.cc
    cpu/row_kernels.cc
  ISA
    "cpu/row_kernels RowKernels row_kernels"
  CUDA
    cuda/fill_random.cc
    cuda/fill_random_kernel.cu
    cuda/gpu_facts.cc
    cuda/view_params.cc
  SM90_HOST
    cuda/sm90/tensor_map.cc)

set(built_for)
if(ATTEND_CUDA)
  list(JOIN ATTEND_CUDA_ARCHITECTURES " " built_for)
endif()
set_source_files_properties(common/build_info.cc PROPERTIES COMPILE_DEFINITIONS "ATTEND_CUDA_ARCHITECTURES=\"${built_for}\"")
if(ATTEND_CUDA)
  set_source_files_properties(common/cuda/gpu_facts.cc PROPERTIES COMPILE_DEFINITIONS
    ATTEND_HAS_SM90A=$<BOOL:${attend_has_sm90a}>)
endif()
# No fused multiply-add, so that results have the same bits as on the host.
set_source_files_properties(common/cuda/fill_random_kernel.cu PROPERTIES COMPILE_OPTIONS --fmad=false)
