# ATTEND_CUDA: whether this build has GPU kernels. ON when nvcc is found, unless it is said otherwise.
#
# The runtime is linked statically and finds the driver when it is first asked, so that what is built starts on a
# machine without one.
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
# Machine code for 8.x does not run on 9.x; the PTX serves what comes later (90: older PTX has no wait for the kernel
# before, and later GPUs start kernels early). 90a-real is for what is under cuda/sm90 of a family of kernels,
# whose instructions no other architecture has; without it those kernels are left out.
set(ATTEND_CUDA_ARCHITECTURES "90a-real;90-real;80-real;90-virtual" CACHE STRING "Architectures of the GPU kernels")

option(ATTEND_SAMPLE_KERNELS
  "Of attention kernels that differ by dtype and head dims alone, build a few: to see that they compile, not to run them" OFF)

if(NOT ATTEND_CUDA)
  message(STATUS "attend: without CUDA (no nvcc, or ATTEND_CUDA=OFF); GPUs are refused at run time")
  return()
endif()
include(AttendCudaArchitectures)
if(PROJECT_IS_TOP_LEVEL AND DEFINED CMAKE_CUDA_ARCHITECTURES)
  message(WARNING "CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} is not read: attend's kernels are built for "
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
  message(FATAL_ERROR "ATTEND_CUDA_ARCHITECTURES=${ATTEND_CUDA_ARCHITECTURES}: only what is under cuda/sm90 is built "
    "for 90a-real; add 90-real for the rest")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit 12.0 REQUIRED)
message(STATUS "attend: CUDA ${CUDAToolkit_VERSION} for ${ATTEND_CUDA_ARCHITECTURES}")
