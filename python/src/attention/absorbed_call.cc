#include "attention/absorbed_call.h"

#include <algorithm>

#include "tensors/arguments.h"

namespace attend::python {
namespace {

// Returns the rows of one K/V head: [num_pages, page_size, dim].
TensorView select_head(const TensorView& latent, int64_t head) {
  TensorView rows = latent.slice(2, head, head + 1);
  rows.rank = 3;
  rows.shape[2] = latent.shape[3];
  rows.strides[2] = latent.strides[3];
  return rows;
}

}  // namespace

std::optional<TensorView> shared_rows(const kernels::KvView& kv) {
  const int64_t head_dim_v = kv.v.shape[3];
  const auto* const behind =
      static_cast<const std::byte*>(kv.v.data) + head_dim_v * static_cast<int64_t>(size_of(kv.v.dtype));
  if (kv.k.data != behind ||
      !std::equal(kv.k.strides.begin(), kv.k.strides.begin() + 3, kv.v.strides.begin()))
    return std::nullopt;
  TensorView rows = kv.v;
  rows.shape[3] += kv.k.shape[3];
  return rows;
}

nb::object joined_rows(nb::handle v, nb::handle k) {
  const nb::object both = nb::make_tuple(v, k);
  if (is_numpy(v)) return nb::module_::import_("numpy").attr("concatenate")(both, nb::arg("axis") = -1);
  if (module_name(v) == "torch") return nb::module_::import_("torch").attr("cat")(both, -1);
  fail(ErrorCode::kUnsupported, "qv with keys and values of ", module_name(v),
       ": expected tensors of torch or numpy");
}

void run_absorbed(const AttentionCall& call, const TensorView& qv, const TensorView& latent,
                  nb::handle q_object) {
  const int64_t num_kv_heads = latent.shape[2], group = call.q.shape[1] / num_kv_heads;
  for (int64_t head = 0; head < num_kv_heads; ++head) {
    const int64_t begin = head * group, end = begin + group;
    AttentionCall one = call;
    one.q = qv.slice(1, begin, end);
    one.q_rope = call.q.slice(1, begin, end);
    one.out = call.out.slice(1, begin, end);
    if (!call.lse.empty()) one.lse = call.lse.slice(1, begin, end);
    if (!call.score.sinks.empty())
      one.score.sinks = call.score.sinks.subspan(static_cast<size_t>(begin), static_cast<size_t>(group));
    one.kv.k = select_head(latent, head);
    one.kv.v = {};
    // The first call rotates the queries of all heads.
    if (head > 0) one.rope_q = std::nullopt;
    run_for(q_object, one);
  }
}

}  // namespace attend::python
