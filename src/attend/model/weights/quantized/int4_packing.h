// Codes of 4 bits as checkpoints pack them, eight in a word of 32 bits, and as kernels read them.
#pragma once

#include <vector>

#include "attend/tensor/tensor.h"

namespace attend {

// Where the code of an output n and an input k stands:
enum class PackingLayout : uint8_t {
  kInputsInOrder,  // words [N, K / 8]: of inputs 8 r .. 8 r + 7, the first one lowest (compressed-tensors)
  kInputsByRow,    // words [K / 8, N]: as that (GPTQ)
  kOutputsMixed,   // words [K, N / 8]: of outputs 8 c + {0, 2, 4, 6, 1, 3, 5, 7}, in this order (AWQ)
  kOutputsByRow,   // words [N / 8, K]: of outputs 8 r .. 8 r + 7 in order (compressed-tensors' zero points)
  kOutputsInOrder  // words [K, N / 8]: of outputs 8 c .. 8 c + 7 in order (GPTQ's zero points)
};

// u8 [N, K / 2] as WeightFormat::kInt4 has it: column j is input order[j], or j where `order` is empty.
Tensor repack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   View<const int32_t> order);

// u8 [N, K], a byte each, plus `add`.
Tensor unpack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   int add);

// [columns, rows] of float16, bfloat16 or float32.
Tensor transposed(const TensorView& matrix);

// The inputs sorted by their groups, those of one group in their order: i32 [K]. Empty when they are in order
// already. Throws Error(kCorruptFile) naming `where` unless every group has group_size of them.
std::vector<int32_t> order_by_group(View<const int32_t> input_group, int64_t group_size,
                                    const std::string& where);

}  // namespace attend
