// Tensor core instructions: PTX ISA, "ldmatrix" and "mma.sync.aligned.m16n8k16" (sm_80), "stmatrix" (sm_90).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace attend::kernels::cuda::ptx {

// Loads four 8 x 8 matrices of 16-bit elements. Lanes 8i to 8i + 7 provide the addresses of the rows of
// matrix i. Lane l receives elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each. "ldmatrix".
__device__ inline void ldmatrix_x4(uint32_t (&matrices)[4], uint32_t shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_row)
               : "memory");
}

// Like ldmatrix_x4, with each matrix transposed. "ldmatrix .trans".
__device__ inline void ldmatrix_x4_trans(uint32_t (&matrices)[4], uint32_t shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_row)
               : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements in the layout of ldmatrix. "movmatrix".
__device__ inline uint32_t transpose(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

// d += a b with a 16 x 16, b 16 x 8 and d 16 x 8 in float32. Lane l holds d of rows l / 4 and l / 4 + 8,
// columns 2 (l % 4) and 2 (l % 4) + 1. "mma.m16n8k16".
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Returns 2^x with a relative error of about 2^-22; 0 for -inf. "ex2.approx.ftz.f32".
__device__ inline float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

// Stores four 8 x 8 matrices of 16-bit elements. Lanes 8i to 8i + 7 provide the addresses of the rows of
// matrix i. Lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each. "stmatrix".
__device__ inline void stmatrix_x4(uint32_t shared_row, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_row),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

// Same for transposed matrices: lane l has elements 2 (l % 4) and 2 (l % 4) + 1 of column l / 4 of each.
// "stmatrix .trans".
__device__ inline void stmatrix_x4_trans(uint32_t shared_row, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared_row),
               "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
               : "memory");
}

}  // namespace attend::kernels::cuda::ptx
