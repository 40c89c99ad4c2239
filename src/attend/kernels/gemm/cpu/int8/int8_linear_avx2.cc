#include "attend/kernels/gemm/cpu/int8/int8_linear_x86.h"

namespace attend::kernels::cpu {
namespace {

struct Avx2Dot {
  static constexpr int kRegisters = 16;
  static __m256i dot(__m256i u, __m256i s) { return dot(u, s, _mm256_set1_epi16(1)); }
  static __m256i dot(__m256i u, __m256i s, __m256i factors) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), factors);
  }

  // Sums of two products in 16 bits.
  static constexpr int panel_steps(int max_code) {
    int steps = 1;
    while (max_code != kSignedCodes && 2 * steps * (2 * 127 * max_code) <= INT16_MAX) steps *= 2;
    return steps;
  }
  static __m256i panel_add(__m256i sum, __m256i u, __m256i s) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(u, s));
  }
  static __m256i panel_sums(__m256i sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
};

}  // namespace

Int8Linear int8_linear_avx2() { return make_int8_linear<Avx2Dot>(); }

}  // namespace attend::kernels::cpu
