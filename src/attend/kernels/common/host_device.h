// ATTEND_HOST_DEVICE: annotation of functions that host and device share, in headers that also compile
// without CUDA.
#pragma once

#if defined(__CUDACC__)
#define ATTEND_HOST_DEVICE __host__ __device__
#else
#define ATTEND_HOST_DEVICE
#endif
