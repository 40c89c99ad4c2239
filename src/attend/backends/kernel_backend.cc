#include "attend/backends/kernel_backend.h"

#include <algorithm>
#include <limits>

#include "attend/backends/check.h"
#include "attend/backends/plan_key.h"
#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/run.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/metadata/metadata.h"

namespace attend {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionPlanLimits;
using kernels::KvIndexKind;

// Returns the number of pool parts of a model: layers with a window may have a separate one.
size_t max_pool_halves(const ModelGeometry& model) {
  const auto windowed = [](const AttentionLayer& layer) { return layer.window_left >= 0; };
  return std::ranges::any_of(model.layers, windowed) && !std::ranges::all_of(model.layers, windowed) ? 2 : 1;
}

// Returns the expanded MLA layers that are used. Deterministic models use absorbed MLA in every step.
std::vector<AttentionLayer> expanded_layers(const BackendConfig& config) {
  return config.deterministic ? std::vector<AttentionLayer>() : config.model.expanded_layers;
}

// Plan of a layer's calls for items.
PlanKey item_key(const AttentionLayer& layer) {
  PlanKey key = plan_key(layer);
  key.attention_mask.window_right = std::numeric_limits<int32_t>::max();
  return key;
}

std::vector<PlanKey> item_keys(const ModelGeometry& model) {
  std::vector<PlanKey> keys;
  for (const AttentionLayer& layer : model.layers)
    if (layer.bidirectional_items && std::ranges::find(keys, item_key(layer)) == keys.end())
      keys.push_back(item_key(layer));
  return keys;
}

// A call has one item.
AttentionPlanLimits item_limits(const BackendSpec& spec, const BackendConfig& config, const PlanKey& key) {
  AttentionPlanLimits limits = plan_limits(spec, config, key);
  limits.max_reqs = 1;
  return limits;
}

// Returns the index of one request of a batch.
kernels::KvIndex request_index(kernels::KvIndex index, int request_idx) {
  if (index.rows != nullptr)
    index.rows += request_idx;
  else if (index.indptr != nullptr)
    index.indptr += request_idx;
  else
    index.table += request_idx * index.table_stride;
  return index;
}

// A call has at most as much contiguous K/V as a step has new tokens.
AttentionPlanLimits expanded_limits(const BackendSpec& spec, const BackendConfig& config,
                                    const PlanKey& key) {
  AttentionPlanLimits limits = plan_limits(spec, config, key);
  limits.max_kv_tokens = std::min<int64_t>(limits.max_kv_tokens, limits.max_tokens);
  return limits;
}

}  // namespace

KernelBackend::KernelBackend(const BackendSpec& spec, const BackendContext& context)
    : spec_(spec), config_(context.config), request_table_(context.request_table), pool_(context.pool) {
  require(config_.page_size == pool_.page_size(), "page_size ", config_.page_size, ": the pool has ",
          pool_.page_size());
  require(config_.model.kv_dtype == pool_.dtype(), "kv_cache_dtype ",
          kernels::cache_dtype_name(config_.model.kv_dtype), ": the pool has ",
          kernels::cache_dtype_name(pool_.dtype()));
  require(config_.model.max_context_len <= request_table_.shape[1], "context length ",
          config_.model.max_context_len, ": the request rows have ", request_table_.shape[1], " positions");
  for (const AttentionLayer& layer : config_.model.layers) {
    check_layer(layer, pool_);
    const int32_t* slot_map = pool_.layer(layer.layer_id).slot_map;
    if (std::ranges::find(indices_, slot_map, &PlannedIndex::slot_map) == indices_.end())
      indices_.push_back({slot_map, BatchIndex(spec_, config_)});
  }
  if (spec_.kernel == KernelPreference::kReference) return;
  for (const PlanKey& key : distinct_plans(config_.model.layers))
    work_.push_back({key, std::make_unique<AttentionPlan>(plan_limits(spec_, config_, key), config_.device)});
  for (const PlanKey& key : distinct_plans(expanded_layers(config_)))
    expanded_work_.push_back(
        {key, std::make_unique<AttentionPlan>(expanded_limits(spec_, config_, key), config_.device)});
  for (const PlanKey& key : item_keys(config_.model))
    item_work_.push_back(
        {key, std::make_unique<AttentionPlan>(item_limits(spec_, config_, key), config_.device)});
  if (Cascade::applies_to(config_)) cascade_.emplace(spec_, config_);
}

size_t KernelBackend::workspace_bytes(const BackendSpec& spec, const BackendConfig& config) {
  size_t bytes = max_pool_halves(config.model) * BatchIndex::num_bytes(spec, config);
  if (spec.kernel == KernelPreference::kReference) return bytes;
  for (const PlanKey& key : distinct_plans(config.model.layers))
    bytes += AttentionPlan::num_bytes(plan_limits(spec, config, key), config.device);
  for (const PlanKey& key : distinct_plans(expanded_layers(config)))
    bytes += AttentionPlan::num_bytes(expanded_limits(spec, config, key), config.device);
  for (const PlanKey& key : item_keys(config.model))
    bytes += AttentionPlan::num_bytes(item_limits(spec, config, key), config.device);
  if (Cascade::applies_to(config)) bytes += Cascade::num_bytes(spec, config);
  return bytes;
}

void KernelBackend::plan(const ForwardBatch& batch, Stream& stream) {
  check_batch(batch, config_, request_table_, pool_);
  if (batch.num_tokens > 0) {
    for (PlannedIndex& planned : indices_)
      planned.index.build({.table = request_table_.as<int32_t>(),
                           .stride = request_table_.strides[0],
                           .rows = raw(batch.request_rows),
                           .seqlen_kv = batch.seqlen_kv,
                           .slot_map = planned.slot_map},
                          stream);
    const kernels::QueryBatch queries = query_batch(batch);
    for (PlannedWork& planned : work_) {
      const kernels::AttentionMask& attention_mask = planned.key.attention_mask;
      kernels::check_step(queries, batch.num_tokens, attention_mask);
      kernels::QueryBatch these =
          cascades(planned.key, batch) ? suffix_queries(queries, batch.shared) : queries;
      these.max_seqlen_kv = max_unmasked_keys(attention_mask, these.max_seqlen_q, these.max_seqlen_kv);
      planned.plan->plan(these, attention_mask, stream);
    }
    if (cascade_ && batch.shared.num_keys > 0) cascade_->plan(batch, request_table_.as<int32_t>(), stream);
  }
  planned_reqs_ = batch.num_reqs;
  planned_tokens_ = batch.num_tokens;
}

bool KernelBackend::plan_depends_on_kv_len(int num_reqs) const {
  constexpr int kLong = kernels::kShortRequestMaxKeys + 1;
  return std::ranges::any_of(work_, [&](const PlannedWork& planned) {
    return max_unmasked_keys(planned.key.attention_mask, 1, kLong) == kLong &&
           planned.plan->plan_depends_on_kv_len(num_reqs);
  });
}

bool KernelBackend::cascades(const PlanKey& key, const ForwardBatch& batch) const {
  return cascade_ && batch.shared.num_keys > 0 && cascade_->serves(key);
}

kernels::QueryBatch KernelBackend::query_batch(const ForwardBatch& batch) const {
  return {.cu_seqlen_q = batch.cu_seqlen_q,
          .seqlen_kv = batch.seqlen_kv,
          .max_seqlen_q = batch.max_seqlen_q,
          .max_seqlen_kv = batch.max_seqlen_kv,
          .tree_mask = batch.tree_mask,
          .tree_mask_words = batch.tree_mask.empty() ? 0 : ceil_div(batch.max_seqlen_q, 64),
          .positions = batch.positions};
}

const kernels::KvIndex& KernelBackend::index_for_pool(const LayerKv& kv) const {
  const auto found = std::ranges::find(indices_, kv.slot_map, &PlannedIndex::slot_map);
  ensure(found != indices_.end(), "a layer with a slot map that was not there at create()");
  return found->index.get();
}

AttentionPlan& KernelBackend::expanded_plan_for_layer(const AttentionLayer& layer) {
  const auto found = std::ranges::find(expanded_work_, plan_key(layer), &PlannedWork::key);
  require(found != expanded_work_.end(), "layer ", layer.layer_id,
          ": no expanded layer of the model has its ", layer.num_q_heads, " heads of ", layer.head_dim_v);
  return *found->plan;
}

AttentionPlan& KernelBackend::plan_for_layer(const AttentionLayer& layer) {
  const auto found = std::ranges::find(work_, plan_key(layer), &PlannedWork::key);
  require(found != work_.end(), "layer ", layer.layer_id, ": no layer of the model has its heads (",
          layer.num_q_heads, "/", layer.num_kv_heads, "), window_left ", layer.window_left, ", window_right ",
          layer.window_right, ", chunk ", layer.chunk, " and type");
  return *found->plan;
}

void KernelBackend::require_planned(const ForwardBatch& batch) const {
  require(batch.num_reqs == planned_reqs_ && batch.num_tokens == planned_tokens_, "batch of ", batch.num_reqs,
          " requests and ", batch.num_tokens, " tokens: planned were ", planned_reqs_, " and ",
          planned_tokens_);
}

KvDestination KernelBackend::destination(const AttentionLayer& layer, const ForwardBatch& batch) {
  require_planned(batch);
  const LayerKv kv = pool_.layer(layer.layer_id);
  const bool latent = layer.kind == KvKind::kMla;
  return {.k = latent ? pool_.latent(layer.layer_id) : kv.k,
          .v = latent ? TensorView() : kv.v,
          .slots = raw(batch.out_slots),
          .slot_map = kv.slot_map,
          .k_scale = kv.k_scale,
          .v_scale = kv.v_scale,
          .fp8_q = latent && spec_.quantizes_q_to_cache_dtype && is_fp8(pool_.dtype()) &&
                   to_phase(batch.mode) == Phase::kDecode};
}

void KernelBackend::forward(const AttentionLayer& layer, const AttentionInput& input,
                            const ForwardBatch& batch, Stream& stream) {
  require_planned(batch);
  if (batch.num_tokens == 0) return;
  require(input.q.rank == 3 && input.q.shape[0] == batch.num_tokens && input.q.shape[1] == layer.num_q_heads,
          "layer ", layer.layer_id, ": q ", input.q, ": expected ", batch.num_tokens, " tokens of ",
          layer.num_q_heads, " heads");
  if (!input.k.empty()) return forward_expanded(layer, input, batch, stream);
  if (layer.kind == KvKind::kMla)
    forward_mla(layer, input, batch, stream);
  else
    forward_mha(layer, input, batch, stream);
}

void KernelBackend::forward_mha(const AttentionLayer& layer, const AttentionInput& input,
                                const ForwardBatch& batch, Stream& stream) {
  const LayerKv kv = pool_.layer(layer.layer_id);
  const kernels::AttentionArgs args{
      .q = input.q,
      .out = input.out,
      .lse = input.lse,
      .kv = {.k = kv.k, .v = kv.v, .index = index_for_pool(kv), .k_scale = kv.k_scale, .v_scale = kv.v_scale},
      .batch = query_batch(batch),
      .attention_mask = layer.attention_mask(),
      .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks},
      .prefix_ready = batch.prefix_ready};
  const bool has_items = layer.bidirectional_items && !batch.items.empty();
  if (spec_.kernel == KernelPreference::kReference) {
    kernels::reference::attention(args);
    if (has_items) forward_items(args, layer, batch, stream);
    return;
  }
  AttentionPlan& plan = plan_for_layer(layer);
  check_layer(layer, pool_);
  if (cascades(plan_key(layer), batch)) return cascade_->attend(args, plan, batch.shared, stream);
  kernels::check_call(args, stream);
  kernels::run(args, plan, stream);
  if (has_items) forward_items(args, layer, batch, stream);
}

void KernelBackend::forward_items(const kernels::AttentionArgs& args, const AttentionLayer& layer,
                                  const ForwardBatch& batch, Stream& stream) {
  const PlanKey key = item_key(layer);
  const auto planned = std::ranges::find(item_work_, key, &PlannedWork::key);
  for (const BidirectionalItem& item : batch.items) {
    const auto rows = [&](const TensorView& view) {
      return view.empty() ? view : view.slice(0, item.first_token, item.first_token + item.num_tokens);
    };
    kernels::AttentionArgs of_item = args;
    of_item.q = rows(args.q);
    of_item.out = rows(args.out);
    of_item.lse = rows(args.lse);
    of_item.kv.index = request_index(args.kv.index, item.request_idx);
    of_item.batch = {.cu_seqlen_q = item.cu_seqlen_q,
                     .seqlen_kv = item.seqlen_kv,
                     .max_seqlen_q = item.num_tokens,
                     .num_tokens = item.num_tokens};
    of_item.attention_mask = key.attention_mask;
    of_item.prefix_ready = false;
    if (spec_.kernel == KernelPreference::kReference) {
      kernels::reference::attention(of_item);
      continue;
    }
    ensure(planned != item_work_.end(), "layer ", layer.layer_id, " has no plan for items");
    planned->plan->plan_inline(of_item.batch, key.attention_mask, stream);
    kernels::run(of_item, *planned->plan, stream);
  }
}

void KernelBackend::forward_expanded(const AttentionLayer& layer, const AttentionInput& input,
                                     const ForwardBatch& batch, Stream& stream) {
  const auto num_reqs = static_cast<size_t>(batch.num_reqs);
  require(input.cu_seqlen_kv.size() == num_reqs + 1 && input.seqlen_kv_expanded.size() == num_reqs, "layer ",
          layer.layer_id, ": cu_seqlen_kv of ", input.cu_seqlen_kv.size(), " and seqlen_kv_expanded of ",
          input.seqlen_kv_expanded.size(), ": expected those of ", batch.num_reqs, " requests");
  // A page is one token.
  const auto pages = [](const TensorView& rows) { return rows.split(0, 1); };
  kernels::AttentionMask attention_mask = layer.attention_mask();
  attention_mask.causal = input.causal;
  if (!input.causal) attention_mask.window_right = 0;
  const kernels::AttentionArgs args{
      .q = input.q,
      .out = input.out,
      .lse = input.lse,
      .kv = {.k = pages(input.k),
             .v = pages(input.v),
             .index = {.kind = KvIndexKind::kContiguous,
                       .page_size = 1,
                       .indptr = input.cu_seqlen_kv.data()}},
      .batch = {.cu_seqlen_q = batch.cu_seqlen_q,
                .seqlen_kv = input.seqlen_kv_expanded,
                .max_seqlen_q = batch.max_seqlen_q},
      .attention_mask = attention_mask,
      .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks}};
  if (spec_.kernel == KernelPreference::kReference) return kernels::reference::attention(args);
  AttentionPlan& plan = expanded_plan_for_layer(layer);
  plan.plan_inline(args.batch, attention_mask, stream);
  kernels::attention(args, plan, stream);
}

void KernelBackend::forward_mla(const AttentionLayer& layer, const AttentionInput& input,
                                const ForwardBatch& batch, Stream& stream) {
  const LayerKv kv = pool_.layer(layer.layer_id);
  const kernels::MlaArgs args{
      .q = input.q,
      .q_rope = input.q_rope,
      .out = input.out,
      .lse = input.lse,
      .latent = pool_.latent(layer.layer_id),
      .index = index_for_pool(kv),
      .scale_kv = kv.k_scale,
      .batch = query_batch(batch),
      .attention_mask = layer.attention_mask(),
      .score = {.scale = layer.scale, .logit_cap = layer.logit_cap, .sinks = layer.sinks},
      .prefix_ready = batch.prefix_ready};
  if (spec_.kernel == KernelPreference::kReference) return kernels::reference::mla(args);
  AttentionPlan& plan = plan_for_layer(layer);
  check_layer(layer, pool_);
  kernels::check_call(args, stream);
  kernels::run(args, plan, stream);
}

std::unique_ptr<AttentionBackend> create_kernel_backend(const BackendSpec& spec,
                                                        const BackendContext& context) {
  return std::make_unique<KernelBackend>(spec, context);
}

size_t kernel_backend_workspace_bytes(const BackendSpec& spec, const BackendConfig& config) {
  return KernelBackend::workspace_bytes(spec, config);
}

}  // namespace attend
