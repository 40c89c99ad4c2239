# ATTEND_CUDA: builds the GPU kernels. ON by default if nvcc is found.
#
# The runtime is linked statically and loads the driver at its first use, so that programs start on machines without a
# driver.
include(CheckLanguage)
if(NOT DEFINED ATTEND_CUDA)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  set(attend_cuda_default ON)
else()
  set(attend_cuda_default OFF)
endif()
option(ATTEND_CUDA "Build the GPU kernels (needs nvcc)" ${attend_cuda_default})
# Machine code for 8.x does not run on 9.x; PTX serves later GPUs (90: older PTX has no wait for the preceding kernel,
# and later GPUs start kernels early). 90a-real is for code in cuda/sm90 of a kernel family, which uses instructions of
# this architecture only; without it those kernels are omitted.
set(ATTEND_CUDA_ARCHITECTURES "90a-real;90-real;80-real;90-virtual" CACHE STRING "Architectures of the GPU kernels")

option(ATTEND_SAMPLE_KERNELS
  "Build only a few of the attention kernels that differ only in dtype and head dims, to check that they compile" OFF)

if(NOT ATTEND_CUDA)
  message(STATUS "attend: without CUDA (no nvcc, or ATTEND_CUDA=OFF); GPUs are rejected at run time")
  return()
endif()
include(AttendCudaArchitectures)
if(PROJECT_IS_TOP_LEVEL AND DEFINED CMAKE_CUDA_ARCHITECTURES)
  message(WARNING "CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} is ignored: attend's kernels are built for "
    "ATTEND_CUDA_ARCHITECTURES, here ${ATTEND_CUDA_ARCHITECTURES}")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${ATTEND_CUDA_ARCHITECTURES})
list(REMOVE_ITEM CMAKE_CUDA_ARCHITECTURES 90a-real)
if("90a-real" IN_LIST ATTEND_CUDA_ARCHITECTURES)
  set(attend_has_sm90a ON)
else()
  set(attend_has_sm90a OFF)
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  message(FATAL_ERROR "ATTEND_CUDA_ARCHITECTURES=${ATTEND_CUDA_ARCHITECTURES}: only code in cuda/sm90 is built "
    "for 90a-real; add 90-real for the rest")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25 does not support C++20 with nvcc.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit 12.0 REQUIRED)
message(STATUS "attend: CUDA ${CUDAToolkit_VERSION} for ${ATTEND_CUDA_ARCHITECTURES}")
