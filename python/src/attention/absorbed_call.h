// Absorbed MLA over two caches: scores are q k + qv v. The kernels read latent rows of one K/V head, which
// consist of the values followed by the keys, so each head is a separate call.
#pragma once

#include <optional>

#include "attention/attention_call.h"
#include "tensors/tensor_argument.h"

namespace attend::python {

// Returns the rows [v, k], of shape [num_pages, page_size, num_kv_heads, head_dim_v + head_dim], if both are
// parts of one tensor, as in MLA caches. Otherwise returns no value.
std::optional<TensorView> shared_rows(const kernels::KvView& kv);

// Returns a new tensor with such rows, created by v's library. Throws Error(kUnsupported) for libraries other
// than torch and numpy.
nb::object joined_rows(nb::handle v, nb::handle k);

// Computes attention for a call that has nothing left to append and has no plan. qv: [num_tokens,
// num_q_heads, head_dim_v]; `latent`: rows as from shared_rows(), with the call's index.
void run_absorbed(const AttentionCall& call, const TensorView& qv, const TensorView& latent,
                  nb::handle q_object);

}  // namespace attend::python
