#include "attend/kernels/gemm/cpu/int8/int8_linear_x86.h"

namespace attend::kernels::cpu {
namespace {

struct Avx2Dot {
  static constexpr int kRegisters = 16;
  static __m256i dot(__m256i u, __m256i s) { return dot(u, s, _mm256_set1_epi16(1)); }
  static __m256i dot(__m256i u, __m256i s, __m256i factors) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), factors);
  }
};

}  // namespace

Int8Linear int8_linear_avx2() { return make_int8_linear<Avx2Dot>(); }

}  // namespace attend::kernels::cpu
