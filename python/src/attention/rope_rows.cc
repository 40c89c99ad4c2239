#include "attention/rope_rows.h"

#include <array>

#include "tensors/arguments.h"

namespace attend::python {
namespace {

std::array<int64_t, 3> dense_shape(const TensorView& rows) {
  return {rows.shape[0], rows.shape[1], rows.shape[2]};
}

// Views the memory of `made` as rows of that shape, regardless of its object's shape.
TensorView rows_over(const ResultTensor& made, const TensorView& shaped_like) {
  return TensorView::contiguous(made.view().data, made.view().dtype, dense_shape(shaped_like),
                                shaped_like.device);
}

void require_angles(const AttentionCall& call, const RotaryArguments& rotary) {
  require(rotary.cos.given() && rotary.sin.given(),
          "rotary_cos, rotary_sin, rotary_seqlens: expected rotary_cos ",
          "and rotary_sin both, or none of the three");
  require(call.appends(), "rotary_cos: expected k and v to append, which are rotated with q");
  for (const auto& [name, tensor] :
       {std::pair("rotary_cos", &rotary.cos), std::pair("rotary_sin", &rotary.sin)}) {
    const TensorView& view = tensor->view();
    require(view.rank == 2 && 2 * view.shape[1] <= call.q.shape[2] && view.shape[0] > 0, name, " ", view,
            ": expected [seqlen_rotary, rotary_dim / 2] with a rotary_dim of at most ", call.q.shape[2]);
    require_same_device(name, view, call.q.device);
  }
  require(rotary.cos->dtype == rotary.sin->dtype && rotary.cos->shape[0] == rotary.sin->shape[0] &&
              rotary.cos->shape[1] == rotary.sin->shape[1],
          "rotary_sin ", *rotary.sin, ": expected the dtype and shape of rotary_cos ", *rotary.cos);
}

// As in FlashAttention, queries without a causal mask or window all have the position of the first new key.
kernels::RowAngles make_angles(const AttentionCall& call, const RotaryArguments& rotary) {
  require_angles(call, rotary);
  kernels::Lengths first_position = call.source.seqlen_cached;
  if (rotary.seqlens.given()) {
    const View<const int32_t> seqlens = int32_vector("rotary_seqlens", rotary.seqlens, call.q.device);
    require(seqlens.size() == static_cast<size_t>(call.source.num_reqs), "rotary_seqlens of ", seqlens.size(),
            " entries: expected ", call.source.num_reqs);
    first_position = {.per_request = seqlens.data()};
  }
  return {.cos = *rotary.cos,
          .sin = *rotary.sin,
          .interleaved = rotary.is_interleaved,
          .first_position = first_position};
}

}  // namespace

RopeRows::RopeRows(AttentionCall& call, nb::handle q_object, nb::handle k_new_object,
                   const std::optional<RotaryArguments>& rotary, const Descales& descales) {
  kernels::RowAngles angles = rotary.has_value() ? make_angles(call, *rotary) : kernels::RowAngles{};
  const int64_t heads_per_scale = call.q.shape[1] / call.kv.k.shape[2];
  const auto make_scale = [&](const Descale& descale) {
    // Appended values are divided by the number that they are multiplied by when read.
    require(!descale.is_tensor() || &descale == &descales.q || !call.appends() || call.new_keys_are_scaled,
            descale.name(), " in a tensor: expected a number, since k and v are appended");
    return descale.rows(heads_per_scale, call.q.device);
  };
  const kernels::RowScales q_scales{make_scale(descales.q), make_scale(descales.k)};
  if (!angles.cos.empty()) {
    k_new_ = ResultTensor::like(k_new_object, call.k_new, dense_shape(call.k_new));
    call.rope_k_new = kernels::RopeRowsArgs{.from = call.k_new,
                                            .to = rows_over(k_new_, call.k_new),
                                            .num_reqs = call.source.num_reqs,
                                            .seqlens = call.source.seqlen_new,
                                            .angles = angles};
    call.k_new = call.rope_k_new->to;
  }
  if (!angles.cos.empty() || descales.q.is_tensor() || descales.k.is_tensor()) {
    angles.same_position = !call.attention_mask.causal;
    q_ = ResultTensor::like(q_object, call.q, dense_shape(call.q));
    call.rope_q = kernels::RopeRowsArgs{.from = call.q,
                                        .to = rows_over(q_, call.q),
                                        .num_reqs = call.source.num_reqs,
                                        .seqlens = call.source.seqlen_q,
                                        .angles = angles,
                                        .scales = q_scales};
    call.q = call.rope_q->to;
  }
  if (descales.v.is_tensor()) {
    // Stays in float32 until it is scaled, so that it is rounded once.
    out_ = ResultTensor::float32_like(q_object, call.q, dense_shape(call.out));
    call.scale_out = kernels::RopeRowsArgs{.from = rows_over(out_, call.out),
                                           .to = call.out,
                                           .num_reqs = call.source.num_reqs,
                                           .seqlens = call.source.seqlen_q,
                                           .scales = {make_scale(descales.v)}};
    call.out = call.scale_out->from;
  }
}

}  // namespace attend::python
