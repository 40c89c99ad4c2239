#include "attend/backends/kernel_backend.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/attention.h"
#include "attend/kernels/metadata.h"
#include "attend/kernels/mla.h"
#include "attend/kernels/store.h"

namespace attend {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionPlanLimits;
using kernels::KvIndexKind;
using kernels::SplitRule;

// A layer's work is planned once for all layers that see the same keys.
std::vector<kernels::Visibility> distinct_visibilities(const ModelGeometry& model) {
  std::vector<kernels::Visibility> found;
  for (const AttentionLayer& layer : model.layers)
    if (std::ranges::find(found, layer.visibility()) == found.end()) found.push_back(layer.visibility());
  return found;
}

AttentionPlanLimits plan_limits(const BackendSpec& spec, const BackendConfig& config) {
  AttentionPlanLimits limits{.max_reqs = config.limits.max_reqs,
                             .max_tokens = config.limits.max_tokens,
                             .max_kv_tokens = config.limits.max_kv_tokens,
                             .split_rule = config.deterministic ? SplitRule::kFixed : spec.split_rule,
                             .split_tokens = spec.split_tokens};
  for (const AttentionLayer& layer : config.model.layers) {
    limits.num_q_heads = std::max(limits.num_q_heads, layer.num_q_heads);
    limits.num_kv_heads = std::max(limits.num_kv_heads, layer.num_kv_heads);
    limits.head_dim_v = std::max(limits.head_dim_v, layer.head_dim_v);
  }
  return limits;
}

// Entries of the table that a spec's index needs.
size_t table_entries(const BackendSpec& spec, const BackendConfig& config) {
  const auto max_reqs = static_cast<size_t>(config.limits.max_reqs);
  switch (spec.index) {
    case KvIndexKind::kPageTable:
      return max_reqs * static_cast<size_t>(ceil_div(config.model.max_context_len, config.page_size));
    case KvIndexKind::kCsr:  // every request may end with a page that is not full
      return static_cast<size_t>(ceil_div(config.limits.max_kv_tokens, int64_t{config.page_size})) + max_reqs;
    case KvIndexKind::kRequestRows:
    case KvIndexKind::kContiguous:
      return 0;
  }
  return 0;
}

size_t indptr_entries(const BackendSpec& spec, const BackendConfig& config) {
  return spec.index == KvIndexKind::kCsr ? static_cast<size_t>(config.limits.max_reqs) + 1 : 0;
}

}  // namespace

KernelBackend::KernelBackend(const BackendSpec& spec, const BackendContext& context)
    : spec_(spec), config_(context.config), requests_(context.requests), pool_(context.pool) {
  require(config_.page_size == pool_.page_size(), "page_size ", config_.page_size, ": the pool has ",
          pool_.page_size());
  for (const AttentionLayer& layer : config_.model.layers) {
    const int32_t* slot_map = pool_.layer(layer.layer_id).slot_map;
    const bool known =
        std::ranges::any_of(indices_, [&](const auto& planned) { return planned.slot_map == slot_map; });
    if (!known)
      indices_.push_back({slot_map,
                          std::vector<int32_t>(table_entries(spec_, config_)),
                          std::vector<int32_t>(indptr_entries(spec_, config_)),
                          {}});
  }
  if (spec_.kernel == KernelChoice::kReference) return;
  for (const kernels::Visibility& visibility : distinct_visibilities(config_.model))
    work_.push_back(
        {visibility, std::make_unique<AttentionPlan>(plan_limits(spec_, config_), config_.device)});
}

size_t KernelBackend::workspace_bytes(const BackendSpec& spec, const BackendConfig& config) {
  const size_t index_bytes = sizeof(int32_t) * (table_entries(spec, config) + indptr_entries(spec, config));
  if (spec.kernel == KernelChoice::kReference) return index_bytes;
  return index_bytes +
         distinct_visibilities(config.model).size() * AttentionPlan::num_bytes(plan_limits(spec, config));
}

void KernelBackend::check_batch(const ForwardBatch& batch) const {
  require(batch.num_reqs <= config_.limits.max_reqs, "batch of ", batch.num_reqs, " requests: at most ",
          config_.limits.max_reqs);
  require(batch.num_tokens <= config_.limits.max_tokens, "batch of ", batch.num_tokens, " tokens: at most ",
          config_.limits.max_tokens);
  for (const TokenSlot slot : batch.out_slots)
    require(slot == kNoSlot || (slot.value >= config_.page_size && slot.value < pool_.num_slots()),
            "out_slot ", slot, ": expected -1, or ", config_.page_size, " to ", pool_.num_slots() - 1);
}

void KernelBackend::plan(const ForwardBatch& batch, Stream& stream) {
  check_batch(batch);
  if (batch.num_reqs == 0) return;
  for (PlannedIndex& planned : indices_) build_index(batch, planned);
  const kernels::QueryBatch queries = query_batch(batch);
  for (PlannedWork& planned : work_) planned.plan->plan(queries, planned.visibility, stream);
}

void KernelBackend::build_index(const ForwardBatch& batch, PlannedIndex& planned) {
  const kernels::RequestRows requests{.table = requests_.table().as<int32_t>(),
                                      .stride = requests_.table().strides[0],
                                      .rows = raw(batch.request_rows),
                                      .seqlen_kv = batch.seqlen_kv,
                                      .slot_map = planned.slot_map};
  planned.index = {.kind = spec_.index, .page_size = config_.page_size};
  switch (spec_.index) {
    case KvIndexKind::kRequestRows:
      planned.index.table = requests.table;
      planned.index.table_stride = requests.stride;
      planned.index.rows = requests.rows.data();
      planned.index.slot_map = planned.slot_map;
      return;
    case KvIndexKind::kPageTable: {
      const int width = ceil_div(config_.model.max_context_len, config_.page_size);
      kernels::build_page_table(requests, config_.page_size, width, planned.table);
      planned.index.table = planned.table.data();
      planned.index.table_stride = width;
      return;
    }
    case KvIndexKind::kCsr:
      kernels::build_csr(requests, config_.page_size,
                         View<int32_t>(planned.indptr).first(static_cast<size_t>(batch.num_reqs) + 1),
                         planned.table);
      planned.index.table = planned.table.data();
      planned.index.indptr = planned.indptr.data();
      return;
    case KvIndexKind::kContiguous:
      fail(ErrorCode::kInternal, "a paged backend with a contiguous index");
  }
}

kernels::QueryBatch KernelBackend::query_batch(const ForwardBatch& batch) const {
  return {.cu_seqlen_q = batch.cu_seqlen_q,
          .seqlen_kv = batch.seqlen_kv,
          .max_seqlen_q = batch.max_seqlen_q,
          .tree_mask = batch.tree_mask,
          .tree_mask_words = batch.tree_mask.empty() ? 0 : ceil_div(batch.max_seqlen_q, 64),
          .positions = batch.positions};
}

KernelBackend::PlannedIndex& KernelBackend::index_of(const int32_t* slot_map) {
  const auto found = std::ranges::find(indices_, slot_map, &PlannedIndex::slot_map);
  ensure(found != indices_.end(), "a layer with a slot map that was not there at create()");
  return *found;
}

AttentionPlan& KernelBackend::work_of(const kernels::Visibility& visibility) {
  const auto found = std::ranges::find(work_, visibility, &PlannedWork::visibility);
  ensure(found != work_.end(), "a layer with a visibility that the model's geometry did not have");
  return *found->plan;
}

void KernelBackend::forward(const AttentionLayer& layer, const AttentionInput& input,
                            const ForwardBatch& batch, Stream& stream) {
  if (batch.num_reqs == 0) return;
  if (layer.kind == KvKind::kMla)
    forward_mla(layer, input, batch, stream);
  else
    forward_mha(layer, input, batch, stream);
}

void KernelBackend::forward_mha(const AttentionLayer& layer, const AttentionInput& input,
                                const ForwardBatch& batch, Stream& stream) {
  const LayerKv kv = pool_.layer(layer.layer_id);
  const bool reference = spec_.kernel == KernelChoice::kReference;
  if (input.store && !input.k.empty()) {
    const kernels::StoreKvArgs store{.k = input.k,
                                     .v = input.v,
                                     .k_cache = kv.k,
                                     .v_cache = kv.v,
                                     .slots = raw(batch.out_slots),
                                     .slot_map = kv.slot_map,
                                     .k_scale = kv.k_scale,
                                     .v_scale = kv.v_scale};
    if (reference)
      kernels::reference::store_kv(store);
    else
      kernels::store_kv(store, stream);
  }
  const kernels::AttentionArgs args{
      .q = input.q,
      .out = input.out,
      .lse = input.lse,
      .kv = {.k = kv.k,
             .v = kv.v,
             .index = index_of(kv.slot_map).index,
             .k_scale = kv.k_scale,
             .v_scale = kv.v_scale},
      .batch = query_batch(batch),
      .visibility = layer.visibility(),
      .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks}};
  if (reference)
    kernels::reference::attention(args);
  else
    kernels::attention(args, work_of(args.visibility), stream);
}

void KernelBackend::forward_mla(const AttentionLayer& layer, const AttentionInput& input,
                                const ForwardBatch& batch, Stream& stream) {
  const LayerKv kv = pool_.layer(layer.layer_id);
  const TensorView latent = pool_.latent(layer.layer_id);
  if (layer.head_dim_qk != latent.shape[2] || layer.head_dim_v + layer.rope_dim != layer.head_dim_qk)
    fail(ErrorCode::kUnsupported, "MLA layer ", layer.layer_id, " with head dims ", layer.head_dim_qk, "/",
         layer.head_dim_v, ": only absorbed layers (", latent.shape[2], "/", latent.shape[2] - layer.rope_dim,
         ") attend over the pool");
  const bool reference = spec_.kernel == KernelChoice::kReference;
  if (input.store && !input.k.empty()) {
    const kernels::StoreMlaArgs store{.latent = input.k,
                                      .rope = input.k_rope,
                                      .cache = latent,
                                      .slots = raw(batch.out_slots),
                                      .scale = kv.k_scale};
    if (reference)
      kernels::reference::store_mla(store);
    else
      kernels::store_mla(store, stream);
  }
  const kernels::MlaArgs args{
      .q = input.q,
      .q_rope = input.q_rope,
      .out = input.out,
      .lse = input.lse,
      .latent = latent,
      .index = index_of(kv.slot_map).index,
      .scale_kv = kv.k_scale,
      .batch = query_batch(batch),
      .visibility = layer.visibility(),
      .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks}};
  if (reference)
    kernels::reference::mla(args);
  else
    kernels::mla(args, work_of(args.visibility), stream);
}

std::unique_ptr<AttentionBackend> create_kernel_backend(const BackendEntry& entry,
                                                        const BackendContext& context) {
  return std::make_unique<KernelBackend>(*static_cast<const BackendSpec*>(entry.spec), context);
}

WorkspaceSize kernel_backend_workspace(const BackendEntry& entry, const BackendConfig& config) {
  return {.bytes = KernelBackend::workspace_bytes(*static_cast<const BackendSpec*>(entry.spec), config)};
}

}  // namespace attend
