#include <algorithm>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/indexer/cpu/index_scores_kernels.h"
#include "attend/kernels/indexer/sparse_mla.h"

namespace attend::kernels {
namespace {

// Bytes of scores, unless one query needs more. They stay in the last-level cache of most machines.
constexpr int64_t kScoreBytes = 16 << 20;

int64_t score_columns(const SparseMlaLimits& limits) {
  return round_up(std::max(1, limits.max_keys), cpu::kMaxTileKeys);
}

int64_t score_rows(const SparseMlaLimits& limits) {
  const int64_t row_bytes = score_columns(limits) * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(kScoreBytes / row_bytes, 1, std::max(1, limits.max_tokens));
}

// A query without splits has the same bits in every step. Without this requirement, splits distribute the
// few queries of a decode step over all threads.
AttentionPlanLimits attention_limits(const SparseMlaLimits& limits) {
  return {.max_reqs = limits.max_tokens,
          .max_tokens = limits.max_tokens,
          .max_kv_tokens = int64_t{limits.max_tokens} * limits.width(),
          .num_q_heads = limits.num_q_heads,
          .num_kv_heads = 1,
          .head_dim_v = limits.kv_lora_rank,
          .split_rule = limits.batch_invariant ? SplitRule::kNone : SplitRule::kBalanced,
          .kv_dtype = limits.kv_dtype};
}

int64_t num_slots(const SparseMlaLimits& limits) { return int64_t{limits.max_tokens} * limits.width(); }

const SparseMlaLimits& checked(const SparseMlaLimits& limits, Device device) {
  if (device.type != DeviceType::kCpu)
    fail(ErrorCode::kUnsupported, "sparse MLA on ", device, ": attend has its kernels for CPUs only");
  require(limits.top_k > 0 && limits.max_keys >= 0 && limits.max_tokens >= 0, "sparse MLA: top_k ",
          limits.top_k, ", max_keys ", limits.max_keys, ", max_tokens ", limits.max_tokens,
          ": expected top_k above 0, and none below 0");
  require(num_slots(limits) < (int64_t{1} << 31), "sparse MLA: ", limits.max_tokens, " new tokens with ",
          limits.width(), " keys each: expected a product below 2^31");
  return limits;
}

}  // namespace

SparseMlaPlan::SparseMlaPlan(const SparseMlaLimits& limits, Device device)
    : limits_(checked(limits, device)),
      slots_(Tensor::zeros({num_slots(limits)}, DType::kI32)),
      counts_(Tensor::zeros({limits.max_tokens}, DType::kI32)),
      token_sums_(Tensor::zeros({int64_t{limits.max_tokens} + 1}, DType::kI32)),
      slot_sums_(Tensor::zeros({int64_t{limits.max_tokens} + 1}, DType::kI32)),
      scores_(Tensor::empty({score_rows(limits), score_columns(limits)}, DType::kF32)),
      attention_(attention_limits(limits), device) {
  for (int32_t token = 0; token <= limits.max_tokens; ++token) {
    token_sums_.as<int32_t>()[token] = token;
    slot_sums_.as<int32_t>()[token] = token * limits.width();
  }
}

size_t SparseMlaPlan::num_bytes(const SparseMlaLimits& limits) {
  const int64_t numbers =
      num_slots(limits) + 3 * (int64_t{limits.max_tokens} + 1) + score_rows(limits) * score_columns(limits);
  return static_cast<size_t>(numbers) * sizeof(int32_t) +
         AttentionPlan::num_bytes(attention_limits(limits), Device{});
}

void SparseMlaPlan::plan(const QueryBatch& batch, int num_tokens, Stream& stream) {
  require(num_tokens <= limits_.max_tokens, "batch of ", num_tokens,
          " tokens: the plan was made for at most ", limits_.max_tokens, " (sparse MLA)");
  require(batch.tree_mask.empty(), "tree mask: sparse MLA supports causal attention only");
  num_tokens_ = num_tokens;
  const View<int32_t> counts = keys().counts;
  std::ranges::fill(counts, 0);
  for (int request = 0; request < batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    const int32_t begin = batch.cu_seqlen_q[r], end = batch.cu_seqlen_q[r + 1];
    const int32_t num_keys = batch.seqlen_kv[r];
    require(0 <= begin && begin <= end && end <= num_tokens && num_keys <= limits_.max_keys, "request ",
            request, " with ", num_keys, " keys and the tokens ", begin, " to ", end, ": expected at most ",
            limits_.max_keys, " keys, and tokens up to ", num_tokens, " (sparse MLA)");
    for (int32_t token = begin; token < end; ++token)
      counts[static_cast<size_t>(token)] = std::clamp(num_keys - (end - 1 - token), 0, limits_.width());
  }
  attention_.plan(queries(), AttentionMask{}, stream);
}

SelectedKeys SparseMlaPlan::keys() const {
  const auto tokens = static_cast<size_t>(num_tokens_);
  return {.slots = slots_.span<int32_t>().first(tokens * static_cast<size_t>(limits_.width())),
          .counts = counts_.span<int32_t>().first(tokens),
          .width = limits_.width()};
}

KvIndex SparseMlaPlan::index() const {
  return {.kind = KvIndexKind::kCsr,
          .page_size = 1,
          .table = slots_.as<int32_t>(),
          .indptr = slot_sums_.as<int32_t>()};
}

QueryBatch SparseMlaPlan::queries() const {
  return {.cu_seqlen_q = token_sums_.span<int32_t>().first(static_cast<size_t>(num_tokens_) + 1),
          .seqlen_kv = keys().counts,
          .max_seqlen_q = 1,
          .max_seqlen_kv = limits_.width()};
}

}  // namespace attend::kernels
