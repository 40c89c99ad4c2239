// Checks of every public kernel entry before it runs: shapes, dtypes, strides. Device arrays are not read.
#include <string_view>
#include <utility>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/run.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels {
namespace {

void require_lse(std::string_view name, const TensorView& lse, int64_t num_tokens, int64_t num_heads) {
  if (lse.empty()) return;
  require_shape(name, lse, {num_tokens, num_heads});
  require(lse.dtype == DType::kF32, name, " ", lse, ": expected float32");
}

void check_batch(const QueryBatch& batch, int64_t num_tokens) {
  require(!batch.cu_seqlen_q.empty() && batch.cu_seqlen_q.size() == batch.seqlen_kv.size() + 1,
          "cu_seqlen_q of ", batch.cu_seqlen_q.size(), " entries for ", batch.seqlen_kv.size(),
          " requests: expected one more");
  if (batch.tree_mask.empty()) return;
  require(batch.tree_mask_words >= 1 && batch.tree_mask_words * 64 >= batch.max_seqlen_q, "tree_mask_words ",
          batch.tree_mask_words, ": expected ceil(max_seqlen_q / 64) = ", ceil_div(batch.max_seqlen_q, 64));
  const size_t words = static_cast<size_t>(num_tokens) * static_cast<size_t>(batch.tree_mask_words);
  require(batch.tree_mask.size() >= words, "tree_mask of ", batch.tree_mask.size(), " words: expected ",
          words);
  require(batch.positions.size() >= static_cast<size_t>(num_tokens), "positions of ", batch.positions.size(),
          " tokens: a tree mask needs ", num_tokens);
}

void check_index(const KvIndex& index, int64_t page_size) {
  require(is_power_of_two(index.page_size) && index.page_size <= 256, "page_size ", index.page_size,
          ": expected a power of two from 1 to 256");
  require(index.page_size == page_size, "page_size ", index.page_size, " in the index, ", page_size,
          " in the cache");
  require(index.slot_map == nullptr || index.kind == KvIndexKind::kRequestRows,
          "slot_map: expected null; only request rows are translated, other indices contain pages of the "
          "pool itself");
  switch (index.kind) {
    case KvIndexKind::kRequestRows:
      require(index.table != nullptr && index.rows != nullptr, "request rows: table and rows are needed");
      return;
    case KvIndexKind::kPageTable:
      require(index.table != nullptr, "page table: table is needed");
      return;
    case KvIndexKind::kCsr:
      require(index.indptr != nullptr && index.table != nullptr, "CSR: indptr and indices are needed");
      return;
    case KvIndexKind::kContiguous:
      require(index.indptr != nullptr, "contiguous K/V: cu_seqlen_kv is needed");
      require(index.page_size == 1, "page_size ", index.page_size, ": contiguous K/V has 1");
      return;
  }
}

void check_mask(const AttentionMask& attention_mask, const QueryBatch& batch) {
  require(attention_mask.window_left >= -1, "window_left ", attention_mask.window_left,
          ": at least 0, or -1 for none");
  require(attention_mask.chunk >= 0, "chunk ", attention_mask.chunk, ": at least 1, or 0 for none");
  require(attention_mask.window_right >= 0, "window_right ", attention_mask.window_right, ": at least 0");
  require(attention_mask.window_right == 0 || (attention_mask.causal && batch.tree_mask.empty()),
          "window_right ", attention_mask.window_right,
          ": expected 0 without a causal mask or with a tree mask");
  require(attention_mask.causal || batch.tree_mask.empty(), "tree mask: expected causal attention");
}

// fp8 queries require K/V of the same dtype. Descales per head require fp8 K/V.
void check_queries(const AttentionArgs& args) {
  const DType q = args.q.dtype;
  if (q != DType::kF8E4M3) {
    require(q != DType::kF8E5M2, "q ", args.q, ": expected float32, float16, bfloat16 or fp8_e4m3");
    require_activation("q", args.q);
    for (const auto& [name, scales] :
         {std::pair("q_scales", &args.q_scales), std::pair("k_scales", &args.k_scales),
          std::pair("v_scales", &args.v_scales)})
      require(scales->data == nullptr || is_fp8(args.kv.k.dtype), name, ": expected none with q ", args.q,
              " over k ", args.kv.k, "; they require fp8 queries or keys");
    return;
  }
  require_unit_stride("q", args.q);
  require(args.kv.k.dtype == q, "k ", args.kv.k, " with q ", args.q, ": expected fp8_e4m3, as q");
}

void check_new_keys(const AttentionArgs& args) {
  const NewKeys& added = args.new_keys;
  if (added.k.empty()) return;
  const int64_t num_reqs = args.batch.num_reqs(), num_kv_heads = args.kv.k.shape[2];
  require_shape("new_keys.k", added.k, {added.k.shape[0], num_kv_heads, args.kv.k.shape[3]});
  require(num_reqs > 0 && added.k.shape[0] % num_reqs == 0, "new_keys.k ", added.k,
          ": expected the same number of keys for each of the ", num_reqs, " requests");
  require_shape("new_keys.v", added.v, {added.k.shape[0], num_kv_heads, args.kv.v.shape[3]});
  require_unit_stride("new_keys.k", added.k);
  require_unit_stride("new_keys.v", added.v);
}

void check_score(const ScoreRule& score, int64_t num_heads) {
  require(score.logit_cap >= 0.0f, "logit_cap ", score.logit_cap, ": above 0, or 0 for none");
  require(score.sinks.empty() || score.sinks.size() == static_cast<size_t>(num_heads),
          "sinks: ", score.sinks.size(), " for ", num_heads, " query heads");
}

void check_head_dims(int64_t qk, int64_t v) {
  const bool ordinary = qk % 8 == 0 && v % 8 == 0 && qk > 0 && v > 0 && qk <= 256 && v <= 256;
  const bool wide = (qk == 512 || qk == 576) && v == 512;
  if (!ordinary && !wide)
    fail(ErrorCode::kUnsupported, "head dims ", qk, "/", v,
         ": expected multiples of 8 up to 256, or 512/512 or 576/512");
}

// Checks q, out, lse and score of a call with keys and values of these shapes.
void check_results(const AttentionArgs& args) {
  require_rank("q", args.q, 3);
  const int64_t num_tokens = args.q.shape[0], num_q_heads = args.q.shape[1], head_dim_qk = args.q.shape[2];
  const int64_t head_dim_v = args.kv.v.shape[3];
  require(args.kv.k.shape[3] == head_dim_qk, "k ", args.kv.k, ": expected ", head_dim_qk, " in dimension 3");
  require_shape("out", args.out, {num_tokens, num_q_heads, head_dim_v});
  check_head_dims(head_dim_qk, head_dim_v);
  require_activation("out", args.out);
  check_queries(args);
  require_lse("lse", args.lse, num_tokens, num_q_heads);
  check_score(args.score, num_q_heads);
}

void check_results(const MlaArgs& args) {
  require_rank("q", args.q, 3);
  const int64_t num_tokens = args.q.shape[0], num_q_heads = args.q.shape[1], rank = args.q.shape[2];
  const int64_t rope_dim = args.q_rope.shape[2];
  require_shape("q_rope", args.q_rope, {num_tokens, num_q_heads, rope_dim});
  require_shape("out", args.out, {num_tokens, num_q_heads, rank});
  require_latent_cache("latent", args.latent, rank, rope_dim);
  if (rank % 8 != 0 || rank <= 0 || rank > 512 || rope_dim % 8 != 0 || rope_dim > 64)
    fail(ErrorCode::kUnsupported, "kv_lora_rank ", rank, " and rope_dim ", rope_dim,
         ": expected multiples of 8 up to 512 and 64");
  require_activation("q", args.q);
  require_activation("q_rope", args.q_rope);
  require(args.q.dtype == args.q_rope.dtype, "q is ", args.q.dtype, ", q_rope is ", args.q_rope.dtype,
          ": expected the same");
  require_activation("out", args.out);
  require_lse("lse", args.lse, num_tokens, num_q_heads);
  check_score(args.score, num_q_heads);
}

void require_on_gpu(const Stream& stream, std::string_view name, const TensorView& view) {
  if (stream.device.type == DeviceType::kCuda && !view.empty()) require_on(stream, name, view);
}

}  // namespace

void check_step(const QueryBatch& batch, int64_t num_tokens, const AttentionMask& attention_mask) {
  check_batch(batch, num_tokens);
  check_mask(attention_mask, batch);
}

void check_call(const AttentionArgs& args, const Stream& stream) {
  check_results(args);
  require_on_gpu(stream, "q", args.q);
  require_on_gpu(stream, "out", args.out);
  require_on_gpu(stream, "lse", args.lse);
}

void check_call(const MlaArgs& args, const Stream& stream) {
  check_results(args);
  require_on_gpu(stream, "q", args.q);
  require_on_gpu(stream, "q_rope", args.q_rope);
  require_on_gpu(stream, "out", args.out);
  require_on_gpu(stream, "lse", args.lse);
}

void check(const AttentionArgs& args) {
  require_rank("k", args.kv.k, 4);
  const int64_t num_pages = args.kv.k.shape[0], page_size = args.kv.k.shape[1],
                num_kv_heads = args.kv.k.shape[2];
  require_shape("v", args.kv.v, {num_pages, page_size, num_kv_heads, args.kv.v.shape[3]});
  require_rank("q", args.q, 3);
  require(num_kv_heads > 0 && args.q.shape[1] % num_kv_heads == 0, "num_q_heads ", args.q.shape[1],
          ": expected a multiple of num_kv_heads ", num_kv_heads);
  check_results(args);
  require_cache("k", args.kv.k);
  require_cache("v", args.kv.v);
  require(args.kv.k.dtype == args.kv.v.dtype, "k is ", args.kv.k.dtype, ", v is ", args.kv.v.dtype,
          ": expected the same");
  require_scale("k_scale", args.kv.k_scale);
  require_scale("v_scale", args.kv.v_scale);
  check_index(args.kv.index, page_size);
  check_step(args.batch, args.q.shape[0], args.attention_mask);
  check_new_keys(args);
}

void check(const MlaArgs& args) {
  check_results(args);
  require_scale("scale_kv", args.scale_kv);
  check_index(args.index, args.latent.shape[1]);
  check_step(args.batch, args.q.shape[0], args.attention_mask);
}

void check(const MergeArgs& args) {
  require_rank("out_a", args.out_a, 3);
  const int64_t num_tokens = args.out_a.shape[0], num_heads = args.out_a.shape[1],
                head_dim = args.out_a.shape[2];
  require_shape("out_b", args.out_b, {num_tokens, num_heads, head_dim});
  require_shape("out", args.out, {num_tokens, num_heads, head_dim});
  require_rank("lse_a", args.lse_a, 2);
  require_rank("lse_b", args.lse_b, 2);
  require_lse("lse_a", args.lse_a, num_tokens, num_heads);
  require_lse("lse_b", args.lse_b, num_tokens, num_heads);
  require_lse("lse", args.lse, num_tokens, num_heads);
  require_activation("out_a", args.out_a);
  require_activation("out_b", args.out_b);
  require_activation("out", args.out);
}

void check(const MergeSplitsArgs& args) {
  require_rank("out", args.out, 3);
  require_rank("partial_out", args.partial_out, 4);
  const int64_t num_splits = args.partial_out.shape[0];
  const int64_t num_tokens = args.out.shape[0], num_heads = args.out.shape[1], head_dim = args.out.shape[2];
  require(num_splits >= 1, "partial_out ", args.partial_out, ": no splits");
  require_shape("partial_out", args.partial_out, {num_splits, num_tokens, num_heads, head_dim});
  require_shape("partial_lse", args.partial_lse, {num_splits, num_tokens, num_heads});
  require(args.partial_out.dtype == DType::kF32 && args.partial_lse.dtype == DType::kF32,
          "partial results are ", args.partial_out.dtype, " and ", args.partial_lse.dtype,
          ": expected float32");
  require_unit_stride("partial_out", args.partial_out);
  require_activation("out", args.out);
  require_lse("lse", args.lse, num_tokens, num_heads);
  require(args.sinks.empty() || args.sinks.size() == static_cast<size_t>(num_heads),
          "sinks: ", args.sinks.size(), " for ", num_heads, " query heads");
}

}  // namespace attend::kernels
