// Absorbed MLA over two caches: scores are q k + qv v. The kernels know latent rows, which are the values
// with the keys behind them, of one K/V head: each head is a call of its own.
#pragma once

#include <optional>

#include "attention_call.h"
#include "tensor_argument.h"

namespace attend::python {

// The rows [v, k] of which both are parts, [num_pages, page_size, num_kv_heads, head_dim_v + head_dim], where
// one tensor holds them, as caches of MLA do. Nothing otherwise.
std::optional<TensorView> shared_rows(const kernels::KvView& kv);

// A new tensor of such rows, of v's library. Throws Error(kUnsupported) for libraries other than torch and
// numpy.
nb::object joined_rows(nb::handle v, nb::handle k);

// Attends for a call that appends nothing any more and has no plan. qv: [num_tokens, num_q_heads,
// head_dim_v]; `latent` is as shared_rows() says, under the call's index.
void run_absorbed(const AttentionCall& call, const TensorView& qv, const TensorView& latent,
                  nb::handle q_object);

}  // namespace attend::python
