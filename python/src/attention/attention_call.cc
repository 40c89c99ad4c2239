#include "attention/attention_call.h"

#include "attention/check_on_host.h"

namespace attend::python {
namespace {

// Returns the first `size` entries if `wanted`, otherwise an empty view.
View<int32_t> head(const Tensor& array, int64_t size, bool wanted) {
  return wanted ? View<int32_t>(array.as<int32_t>(), static_cast<size_t>(size)) : View<int32_t>();
}

void apply_if_any(const std::optional<kernels::RopeRowsArgs>& args, Stream& stream) {
  if (args.has_value()) kernels::apply_rope_rows(*args, stream);
}

// Derives the requested arrays, and appends new keys if the call has any.
void derive_and_append(const AttentionCall& call, const kernels::BatchArrays& arrays, Stream& stream) {
  if (call.appends()) {
    apply_if_any(call.rope_k_new, stream);
    return kernels::append_keys(call.source, arrays,
                                {.k = call.k_new,
                                 .v = call.v_new,
                                 .to = {.k = call.kv.k,
                                        .v = call.kv.v,
                                        .slots = arrays.new_slots,
                                        .k_scale = call.new_keys_are_scaled ? 1.0f : call.kv.k_scale,
                                        .v_scale = call.new_keys_are_scaled ? 1.0f : call.kv.v_scale}},
                                stream);
  }
  if (!arrays.cu_seqlen_q.empty() || !arrays.seqlen_kv.empty() || !arrays.first_key.empty() ||
      !arrays.key_slots.empty())
    kernels::derive_batch(call.source, arrays, stream);
}

// Returns pages as tokens; consecutive pages are `page_spacing` tokens apart.
TensorView token_rows(const TensorView& pages, int32_t page_spacing) {
  TensorView rows = pages;
  rows.shape[0] = pages.shape[0] == 0 ? 0 : (pages.shape[0] - 1) * page_spacing + pages.shape[1];
  rows.shape[1] = 1;
  rows.strides[0] = pages.strides[1];
  return rows;
}

// Returns K and V at the positions of the derived arrays.
kernels::KvView derived_keys(const AttentionCall& call, const Tensor& first_key) {
  kernels::KvView kv = call.kv;
  const kernels::KvLocations& locations = call.source.locations;
  if (!call.key_slots.empty()) {
    kv.k = token_rows(kv.k, locations.page_spacing);
    if (!call.is_mla()) kv.v = token_rows(kv.v, locations.page_spacing);
    kv.index = {.kind = kernels::KvIndexKind::kPageTable,
                .table = call.key_slots.data(),
                .table_stride = locations.capacity};
  } else if (call.derives_first_key()) {
    if (kv.index.kind == kernels::KvIndexKind::kPageTable) kv.index.kind = kernels::KvIndexKind::kCsr;
    kv.index.indptr = first_key.as<int32_t>();
  }
  return kv;
}

}  // namespace

int columns_at_once(int64_t head_dim_qk, int64_t head_dim_v) {
  // Sizes that check(AttentionArgs) accepts. Latent rows may be wider in both.
  constexpr int64_t kMaxHeadDim = 256, kMultiple = 8;
  for (int64_t parts = 1; head_dim_qk <= kMaxHeadDim && parts * kMultiple <= head_dim_v; ++parts)
    if (head_dim_v % (parts * kMultiple) == 0 && head_dim_v / parts <= kMaxHeadDim)
      return static_cast<int>(head_dim_v / parts);
  return static_cast<int>(head_dim_v);
}

int columns_at_once(const AttentionCall& call) {
  return call.is_mla() ? static_cast<int>(call.out.shape[2])
                       : columns_at_once(call.q.shape[2], call.out.shape[2]);
}

kernels::AttentionPlanLimits make_limits(const AttentionCall& call, Device device) {
  kernels::AttentionPlanLimits limits{
      .max_reqs = kernels::num_batch_reqs(call.source),
      .max_tokens = static_cast<int>(call.q.shape[0]),
      .num_q_heads = static_cast<int>(call.q.shape[1]),
      .num_kv_heads = call.is_mla() ? 1 : static_cast<int>(call.kv.k.shape[2]),
      .head_dim_v = columns_at_once(call),
      .split_rule = call.split_rule,
      .num_workers = call.num_workers,
      .kv_dtype = call.is_mla() ? call.q.dtype : call.kv.k.dtype};
  if (device.type == DeviceType::kCpu)
    limits.max_kv_tokens = num_kv_tokens_on_host(call);
  else if (call.split_rule == kernels::SplitRule::kFixed)
    // Lengths are not read; requests that share no pages fit into the cache.
    limits.max_kv_tokens = call.kv.k.shape[0] * call.kv.k.shape[1];
  return limits;
}

Workspace::Workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens, Device device)
    : limits_(limits),
      plan_(limits, device),
      cu_seqlen_q_(Tensor::empty({limits.max_reqs + 1}, DType::kI32, device)),
      seqlen_kv_(Tensor::empty({limits.max_reqs}, DType::kI32, device)),
      first_key_(Tensor::empty({limits.max_reqs + 1}, DType::kI32, device)),
      new_slots_(Tensor::empty({num_new_tokens}, DType::kI32, device)) {}

kernels::BatchArrays Workspace::wanted_arrays(const AttentionCall& call, bool wants_lengths) const {
  const int64_t num_reqs = kernels::num_batch_reqs(call.source);
  return {.cu_seqlen_q = head(cu_seqlen_q_, num_reqs + 1, wants_lengths && call.cu_seqlen_q.empty()),
          .seqlen_kv = head(seqlen_kv_, num_reqs, wants_lengths && call.seqlen_kv.empty()),
          .first_key = head(first_key_, num_reqs + 1, call.derives_first_key()),
          .new_slots = head(new_slots_, call.num_new_tokens(), call.appends()),
          .key_slots = call.key_slots};
}

void Workspace::note(const Stream& stream) {
  on_several_streams_ |= num_plans_ > 0 && stream.handle != stream_handle_;
  stream_handle_ = stream.handle;
}

kernels::QueryBatch Workspace::make_batch(const AttentionCall& call, View<const int32_t> cu_seqlen_q,
                                          View<const int32_t> seqlen_kv) {
  return {.cu_seqlen_q = cu_seqlen_q,
          .seqlen_kv = seqlen_kv,
          .max_seqlen_q = call.max_seqlen_q,
          .num_tokens = call.q.empty() ? call.num_tokens : static_cast<int>(call.q.shape[0]),
          .tree_mask = call.tree_mask,
          .tree_mask_words = call.tree_mask_words,
          .positions = call.positions};
}

void Workspace::prepare(const AttentionCall& call, Stream& stream) {
  note(stream);
  const kernels::BatchArrays arrays = wanted_arrays(call, true);
  batch_ = make_batch(call, call.cu_seqlen_q.empty() ? arrays.cu_seqlen_q : call.cu_seqlen_q,
                      call.seqlen_kv.empty() ? arrays.seqlen_kv : call.seqlen_kv);
  derive_and_append(call, arrays, stream);
  ++num_plans_;
}

void Workspace::plan(const AttentionCall& call, Stream& stream) {
  prepare(call, stream);
  plan_.plan(batch_, call.attention_mask, stream);
}

bool Workspace::append_and_attend(const AttentionCall& call, Stream& stream) {
  if (!call.appends_plainly() || columns_at_once(call) != call.out.shape[2]) return false;
  batch_ = make_batch(call, call.cu_seqlen_q,
                      {call.source.seqlen_cached.per_request, static_cast<size_t>(call.source.num_reqs)});
  if (!plan_.try_plan_inline(batch_, call.attention_mask)) return false;
  kernels::AttentionArgs args = attention_args(call, call.kv);
  args.new_keys = {.k = call.k_new, .v = call.v_new, .capacity = call.source.locations.capacity};
  if (!kernels::stores_new_keys(args, plan_)) return false;
  note(stream);
  ++num_plans_;
  kernels::attention(args, plan_, stream);
  apply_if_any(call.scale_out, stream);
  return true;
}

void Workspace::plan_and_attend(const AttentionCall& call, Stream& stream) {
  if (append_and_attend(call, stream)) return;
  prepare(call, stream);
  if (columns_at_once(call) == call.out.shape[2])
    plan_.plan_inline(batch_, call.attention_mask, stream);
  else
    plan_.plan(batch_, call.attention_mask, stream);
  attend(call, stream);
}

void Workspace::place_keys(const AttentionCall& call, Stream& stream) {
  derive_and_append(call, wanted_arrays(call, false), stream);
}

kernels::AttentionArgs Workspace::attention_args(const AttentionCall& call, const kernels::KvView& kv) const {
  return {.q = call.q,
          .out = call.out,
          .lse = call.lse,
          .kv = kv,
          .batch = batch_,
          .attention_mask = call.attention_mask,
          .score = call.score,
          .q_scales = call.q_scales,
          .k_scales = call.k_scales,
          .v_scales = call.v_scales};
}

bool Workspace::attend_descaled(const AttentionCall& call, const kernels::KvView& kv, Stream& stream) {
  if (!call.descaled.has_value() || columns_at_once(call) != call.out.shape[2]) return false;
  kernels::AttentionArgs args = attention_args(call, kv);
  if (call.rope_q.has_value()) args.q = call.rope_q->from;
  if (call.scale_out.has_value()) args.out = call.scale_out->to;
  args.q_scales = call.descaled->q;
  args.k_scales = call.descaled->k;
  args.v_scales = call.descaled->v;
  if (!kernels::has_head_descales(args, plan_)) return false;
  kernels::attention(args, plan_, stream);
  return true;
}

void Workspace::attend(const AttentionCall& call, Stream& stream) {
  note(stream);
  const kernels::KvView kv = derived_keys(call, first_key_);
  if (attend_descaled(call, kv, stream)) return;
  apply_if_any(call.rope_q, stream);
  if (call.is_mla())
    return kernels::mla({.q = call.q,
                         .q_rope = call.q_rope,
                         .out = call.out,
                         .lse = call.lse,
                         .latent = kv.k,
                         .index = kv.index,
                         .scale_kv = kv.k_scale,
                         .batch = batch_,
                         .attention_mask = call.attention_mask,
                         .score = call.score,
                         .empty_lse = call.empty_lse},
                        plan_, stream);
  const int64_t head_dim_v = call.out.shape[2], num_columns = columns_at_once(call);
  for (int64_t begin = 0; begin < head_dim_v; begin += num_columns) {
    kernels::AttentionArgs args = attention_args(call, kv);
    args.kv.v = kv.v.slice(3, begin, begin + num_columns);
    args.out = call.out.slice(2, begin, begin + num_columns);
    kernels::attention(args, plan_, stream);
  }
  apply_if_any(call.scale_out, stream);
}

}  // namespace attend::python
