// Matrices from registers to shared memory: PTX ISA, "stmatrix" (sm_90).
#pragma once

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Four 8 x 8 matrices of 16-bit elements. Lanes 8i to 8i + 7 give the addresses of the rows of matrix i; lane
// l has elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each. "stmatrix".
__device__ inline void stmatrix_x4(uint32_t shared_row, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_row),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

}  // namespace attend::kernels::cuda::ptx
