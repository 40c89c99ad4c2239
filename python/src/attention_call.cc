#include "attention_call.h"

#include <algorithm>
#include <bit>

#include "attend/kernels/store.h"
#include "attend/tensor/cuda.h"
#include "check_on_host.h"

namespace attend::python {
namespace {

Tensor int32_array(int64_t size, Device device) {
  return device.type == DeviceType::kCpu ? Tensor::empty({size}, DType::kI32)
                                         : cuda::empty({size}, DType::kI32, device);
}

// The first `size` entries, when they are wanted.
View<int32_t> head(const Tensor& array, int64_t size, bool wanted) {
  return wanted ? View<int32_t>(array.as<int32_t>(), static_cast<size_t>(size)) : View<int32_t>();
}

bool same_geometry(const kernels::AttentionPlanLimits& a, const kernels::AttentionPlanLimits& b) {
  return a.num_q_heads == b.num_q_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim_v == b.head_dim_v &&
         a.split_rule == b.split_rule;
}

bool holds(const Workspace& workspace, const kernels::AttentionPlanLimits& needed, int64_t num_new_tokens) {
  return needed.max_reqs <= workspace.limits().max_reqs &&
         needed.max_tokens <= workspace.limits().max_tokens && num_new_tokens <= workspace.num_new_tokens();
}

int next_size(int needed) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(needed, 64))));
}

}  // namespace

kernels::AttentionPlanLimits limits_of(const AttentionCall& call, Device device) {
  kernels::AttentionPlanLimits limits{
      .max_reqs = call.source.num_reqs,
      .max_tokens = static_cast<int>(call.q.shape[0]),
      .num_q_heads = static_cast<int>(call.q.shape[1]),
      .num_kv_heads = call.is_mla() ? 1 : static_cast<int>(call.kv.k.shape[2]),
      .head_dim_v = static_cast<int>(call.out.shape[2]),
      .split_rule = call.split_rule};
  if (device.type == DeviceType::kCpu) limits.max_kv_tokens = num_kv_tokens_on_host(call);
  return limits;
}

Workspace::Workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens, Device device)
    : plan_(limits, device),
      cu_seqlen_q_(int32_array(limits.max_reqs + 1, device)),
      seqlen_kv_(int32_array(limits.max_reqs, device)),
      first_key_(int32_array(limits.max_reqs + 1, device)),
      new_slots_(int32_array(num_new_tokens, device)) {}

void Workspace::plan(const AttentionCall& call, Stream& stream) {
  const int64_t num_reqs = call.source.num_reqs;
  const kernels::BatchArrays arrays{.cu_seqlen_q = head(cu_seqlen_q_, num_reqs + 1, call.cu_seqlen_q.empty()),
                                    .seqlen_kv = head(seqlen_kv_, num_reqs, call.seqlen_kv.empty())};
  batch_ = {.cu_seqlen_q = call.cu_seqlen_q.empty() ? arrays.cu_seqlen_q : call.cu_seqlen_q,
            .seqlen_kv = call.seqlen_kv.empty() ? arrays.seqlen_kv : call.seqlen_kv,
            .max_seqlen_q = call.max_seqlen_q};
  if (!arrays.cu_seqlen_q.empty() || !arrays.seqlen_kv.empty())
    kernels::derive_batch(call.source, arrays, stream);
  plan_.plan(batch_, call.visibility, stream);
}

void Workspace::attend(const AttentionCall& call, Stream& stream) {
  kernels::KvView kv = call.kv;
  const bool derives_first_key =
      kv.index.kind == kernels::KvIndexKind::kContiguous && kv.index.indptr == nullptr;
  if (derives_first_key) kv.index.indptr = first_key_.as<int32_t>();
  const kernels::BatchArrays arrays{
      .first_key = head(first_key_, call.source.num_reqs + 1, derives_first_key),
      .new_slots = head(new_slots_, call.appends() ? call.k_new.shape[0] : 0, call.appends())};
  if (derives_first_key || call.appends()) kernels::derive_batch(call.source, arrays, stream);
  if (call.appends())
    kernels::store_kv({.k = call.k_new,
                       .v = call.v_new,
                       .k_cache = kv.k,
                       .v_cache = kv.v,
                       .slots = arrays.new_slots,
                       .k_scale = kv.k_scale,
                       .v_scale = kv.v_scale},
                      stream);
  kernels::QueryBatch batch = batch_;
  batch.tree_mask = call.tree_mask;
  batch.tree_mask_words = call.tree_mask_words;
  batch.positions = call.positions;
  if (call.is_mla())
    return kernels::mla({.q = call.q,
                         .q_rope = call.q_rope,
                         .out = call.out,
                         .lse = call.lse,
                         .latent = kv.k,
                         .index = kv.index,
                         .scale_kv = kv.k_scale,
                         .batch = batch,
                         .visibility = call.visibility,
                         .score = call.score},
                        plan_, stream);
  kernels::attention({.q = call.q,
                      .out = call.out,
                      .lse = call.lse,
                      .kv = kv,
                      .batch = batch,
                      .visibility = call.visibility,
                      .score = call.score},
                     plan_, stream);
}

std::unique_ptr<Workspace> make_workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens,
                                          Device device) {
  if (device.type == DeviceType::kCpu) return std::make_unique<Workspace>(limits, num_new_tokens, device);
  const cuda::CaptureTolerance tolerance;
  return std::make_unique<Workspace>(limits, num_new_tokens, device);
}

Workspace& Workspaces::find(const AttentionCall& call, const Stream& stream) {
  const kernels::AttentionPlanLimits needed = limits_of(call, stream.device);
  const int64_t num_new_tokens = call.appends() ? call.k_new.shape[0] : 0;
  const Workspace* too_small = nullptr;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    Workspace& workspace = *entry->workspace;
    if (entry->stream.handle != stream.handle || entry->stream.device != stream.device ||
        !same_geometry(workspace.limits(), needed))
      continue;
    if (holds(workspace, needed, num_new_tokens)) return workspace;
    too_small = &workspace;
    break;
  }
  kernels::AttentionPlanLimits limits = needed;
  limits.max_reqs =
      next_size(std::max(needed.max_reqs, too_small == nullptr ? 0 : too_small->limits().max_reqs));
  limits.max_tokens =
      next_size(std::max(needed.max_tokens, too_small == nullptr ? 0 : too_small->limits().max_tokens));
  entries_.push_back(
      {stream, make_workspace(limits, std::max<int64_t>(num_new_tokens, limits.max_tokens), stream.device)});
  return *entries_.back().workspace;
}

void run(const AttentionCall& call, Workspaces& workspaces, Stream stream) {
  if (stream.device.type == DeviceType::kCpu) {
    check_on_host(call);
    Workspace workspace(limits_of(call, stream.device), call.appends() ? call.k_new.shape[0] : 0,
                        stream.device);
    workspace.plan(call, stream);
    return workspace.attend(call, stream);
  }
  const cuda::DeviceScope scope(stream.device);
  Workspace& workspace = workspaces.find(call, stream);
  workspace.plan(call, stream);
  workspace.attend(call, stream);
}

void run_planned(const AttentionCall& call, Workspace& workspace, Stream stream) {
  if (stream.device.type == DeviceType::kCpu) {
    check_on_host(call);
    return workspace.attend(call, stream);
  }
  const cuda::DeviceScope scope(stream.device);
  workspace.attend(call, stream);
}

}  // namespace attend::python
