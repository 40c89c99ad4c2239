#include "attend/kernels/gemm/cpu/linear_instances.h"
#include "attend/kernels/gemm/cpu/linear_pairs_packed.h"

namespace attend::kernels::cpu {
namespace {

void round_rows(const LinearPart& part, const PairRows& rows) {
  for (int64_t row = 0; row < part.num_rows; ++row) {
    const float* const x = part.x + row * part.x_stride;
    uint32_t* const to = rows.data + row * rows.stride;
    for (int64_t i = 0; i < part.in_features; i += kPairInputs) {
      const int64_t rest = part.in_features - i;
      Bf16Mac::store(to + i / 2,
                     Bf16Mac::load_steps(x + i, rest < kPairInputs ? static_cast<int>(rest) : kPairInputs));
    }
  }
}

void skinny(const LinearPart& part, const PairRows& rows) {
  multiply_pairs_skinny(part, rows);
  add_bias<Avx512>(part);
}

void packed(const LinearPart& part, const PairRows& rows) {
  multiply_pairs_packed(part, rows);
  add_bias<Avx512>(part);
}

}  // namespace

PairLinear pair_linear_avx512bf16() { return {.round = &round_rows, .skinny = &skinny, .packed = &packed}; }

}  // namespace attend::kernels::cpu
