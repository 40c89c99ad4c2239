# Rejects ATTEND_CUDA_ARCHITECTURES that the kernels do not support: they require mma.sync, cp.async and bf16 of compute
# capability 8.0. `native` is the GPU of the machine.
foreach(architecture IN LISTS ATTEND_CUDA_ARCHITECTURES)
  if(architecture STREQUAL "native")
    continue()
  endif()
  if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
    message(FATAL_ERROR "ATTEND_CUDA_ARCHITECTURES has ${architecture}: attend's kernels need compute capability 8.0: "
      "expected 80 or above, such as 80-real or 90-real, or native")
  endif()
  if(CMAKE_MATCH_1 LESS 90 AND NOT CMAKE_MATCH_2 STREQUAL "-real")
    message(FATAL_ERROR "ATTEND_CUDA_ARCHITECTURES has ${architecture}: its PTX would also run on GPUs after Hopper, where "
      "kernels start before their dependencies have ended, and this PTX has no wait for them: expected "
      "${CMAKE_MATCH_1}-real, and 90-virtual for later GPUs")
  endif()
endforeach()
