// Rows chosen by indices. Activations are f32 on the CPU, f32, f16 or bf16 on GPUs; tables f32, f16 or
// bf16. Indices lie where the stream runs: on the CPU they are checked here, on a GPU the caller has checked
// them.
#pragma once

#include "attend/tensor/stream.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend::kernels {

// out[i] = scale * table[ids[i]], rounded once. ids: [num_tokens], table: [vocab_size, hidden], out:
// [num_tokens, hidden].
void embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream,
               float scale = 1.0f);

// out[i] += table[ids[i]]: a second table, such as that of learned positions.
void add_embedding(View<const int32_t> ids, const TensorView& table, const TensorView& out, Stream& stream);

// out[i] = x[rows[i]]: the rows whose logits are wanted. x: [num_tokens, hidden].
void gather_rows(const TensorView& x, View<const int32_t> rows, const TensorView& out, Stream& stream);

}  // namespace attend::kernels
#pragma GCC visibility pop
