// With vpdpbusd of AVX512-VNNI, which machines with AVX512-BF16 have. Vectors have 256 bits, since a unit has
// 32 codes and one row is bound by memory.
#include "attend/kernels/gemm/cpu/int8/int8_linear_x86.h"

namespace attend::kernels::cpu {
namespace {

struct VnniDot {
  static constexpr int kRegisters = 32;
  static __m256i dot(__m256i u, __m256i s) { return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s); }
  static __m256i dot(__m256i u, __m256i s, __m256i factors) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), factors);
  }

  static constexpr int panel_steps(int) { return kPanelGroups; }
  static __m256i panel_add(__m256i sum, __m256i u, __m256i s) { return _mm256_dpbusd_epi32(sum, u, s); }
  static __m256i panel_sums(__m256i sum) { return sum; }
};

}  // namespace

Int8Linear int8_linear_avx512bf16() { return make_int8_linear<VnniDot>(); }

}  // namespace attend::kernels::cpu
