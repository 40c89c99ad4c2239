// Converts 4-bit codes from the layouts of checkpoints, with eight codes per 32-bit word, to the layout of
// kernels.
#pragma once

#include <vector>

#include "attend/tensor/tensor.h"

namespace attend {

// Layout of the codes of N outputs and K inputs in words.
enum class PackingLayout : uint8_t {
  kInputsInOrder,  // words [N, K / 8] of inputs 8 r .. 8 r + 7, the first in the low bits
                   // (compressed-tensors)
  kInputsByRow,    // words [K / 8, N] of the same inputs (GPTQ)
  kOutputsMixed,   // words [K, N / 8] of outputs 8 c + {0, 2, 4, 6, 1, 3, 5, 7}, in this order (AWQ)
  kOutputsByRow,   // words [N / 8, K] of outputs 8 r .. 8 r + 7 in order (zero points of compressed-tensors)
  kOutputsInOrder  // words [K, N / 8] of outputs 8 c .. 8 c + 7 in order (zero points of GPTQ)
};

// Returns u8 [N, K / 2] in the layout of WeightFormat::kInt4. Column j is input order[j], or j if `order` is
// empty.
Tensor repack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   View<const int32_t> order);

// Returns u8 [N, K] with one code per byte, plus `add`.
Tensor unpack_int4(const TensorView& words, PackingLayout packing, int64_t num_outs, int64_t num_ins,
                   int add);

// Returns the matrix as [columns, rows]. Accepts float16, bfloat16 or float32.
Tensor transposed(const TensorView& matrix);

// Returns the inputs in stable order of their groups: i32 [K], or an empty vector if groups are contiguous.
// If a group does not have group_size inputs, throws Error(kCorruptFile) with `where`.
std::vector<int32_t> order_by_group(View<const int32_t> input_group, int64_t group_size,
                                    const std::string& where);

}  // namespace attend
