// ATTEND_HOST_DEVICE: of functions that host and device share, in a header that compiles without CUDA too.
#pragma once

#pragma GCC visibility push(default)
#if defined(__CUDACC__)
#define ATTEND_HOST_DEVICE __host__ __device__
#else
#define ATTEND_HOST_DEVICE
#endif
#pragma GCC visibility pop
