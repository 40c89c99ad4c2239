// ATTEND_HOST_DEVICE: of functions that host and device share, in a header that compiles without CUDA too.
#pragma once

#if defined(__CUDACC__)
#define ATTEND_HOST_DEVICE __host__ __device__
#else
#define ATTEND_HOST_DEVICE
#endif
