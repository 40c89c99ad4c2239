// Specification of attention and MLA: one query, one head, one key after another, in float64.
#include <cmath>
#include <vector>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/reference_mask.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::reference {
namespace {

// Output of a row, common to attention and MLA.
struct Row {
  std::vector<double> out;
  double lse;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

// Query and head of a row, and the descales of its K and V.
struct ReferenceRow {
  const Query& query;
  int64_t head;
  double k_scale, v_scale;
};

// Computes the softmax over the visible keys. `get_score(k)` returns q.k and `get_value(k)` the row of V;
// both are called for visible keys only. Args: AttentionArgs or MlaArgs.
template <class Args, class ScoreOf, class ValueOf>
Row attend_row(const Args& args, const ReferenceRow& of, const ScoreOf& get_score, const ValueOf& get_value) {
  const ScoreRule& rule = args.score;
  const auto head_dim_v = static_cast<size_t>(args.out.shape[2]);
  std::vector<int32_t> keys;
  std::vector<double> scores;
  double row_max = kEmptyLse;
  for (int32_t k = 0; k < of.query.seqlen_kv; ++k) {
    if (!sees(args.batch, args.attention_mask, of.query, k)) continue;
    double score = static_cast<double>(rule.scale) * of.k_scale * get_score(k);
    if (rule.logit_cap > 0.0f)
      score = rule.logit_cap * std::tanh(score / static_cast<double>(rule.logit_cap));
    keys.push_back(k);
    scores.push_back(score);
    row_max = std::max(row_max, score);
  }
  Row row{.out = std::vector<double>(head_dim_v, 0.0), .lse = kEmptyLse};
  if (keys.empty()) return row;
  double sum = 0.0;
  for (size_t i = 0; i < keys.size(); ++i) {
    const double p = std::exp(scores[i] - row_max);
    sum += p;
    const std::vector<double> value = get_value(keys[i]);
    for (size_t d = 0; d < head_dim_v; ++d) row.out[d] += p * value[d];
  }
  row.lse = row_max + std::log(sum);
  const double sink = rule.sinks.empty()
                          ? 0.0
                          : std::exp(static_cast<double>(rule.sinks[static_cast<size_t>(of.head)]) - row_max);
  for (double& element : row.out) element *= of.v_scale / (sum + sink);
  return row;
}

void write_row(const TensorView& out, const TensorView& lse, int token, int64_t head, const Row& row) {
  for (size_t d = 0; d < row.out.size(); ++d) store(out, offset(out, token, head, d), row.out[d]);
  if (!lse.empty()) store(lse, offset(lse, token, head), row.lse);
}

// Calls fn(query) for every query of the batch, and writes the empty row for padding tokens.
template <class Fn>
void for_each_query(const QueryBatch& batch, const AttentionMask& attention_mask, const TensorView& out,
                    const TensorView& lse, const Fn& fn) {
  for (int request = 0; request < batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    for (int j = 0; j < batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r]; ++j)
      fn(make_query(batch, attention_mask, request, j));
  }
  const Row empty{.out = std::vector<double>(static_cast<size_t>(out.shape[2]), 0.0), .lse = kEmptyLse};
  for (int token = batch.cu_seqlen_q.back(); token < out.shape[0]; ++token)
    for (int64_t head = 0; head < out.shape[1]; ++head) write_row(out, lse, token, head, empty);
}

}  // namespace

void attention(const AttentionArgs& args) {
  check(args);
  const int64_t group = args.q.shape[1] / args.kv.k.shape[2];
  const int64_t head_dim_qk = args.q.shape[2], head_dim_v = args.out.shape[2];
  const int32_t page_size = args.kv.index.page_size;
  for_each_query(args.batch, args.attention_mask, args.out, args.lse, [&](const Query& query) {
    for (int64_t head = 0; head < args.q.shape[1]; ++head) {
      const std::vector<double> q = load_row(args.q, offset(args.q, query.token, head), head_dim_qk);
      // Returns the row of K or V of key `k`.
      const auto get_row = [&](const TensorView& pool, int32_t k, int64_t head_dim) {
        const int32_t page = find_page(args.kv.index, query.request, k);
        return load_row(pool, offset(pool, page, k % page_size, head / group), head_dim);
      };
      const auto get_score = [&](int32_t k) { return dot(q, get_row(args.kv.k, k, head_dim_qk)); };
      const auto get_value = [&](int32_t k) { return get_row(args.kv.v, k, head_dim_v); };
      const auto scale = [&](const HeadScales& scales) {
        return scales.data == nullptr
                   ? 1.0
                   : static_cast<double>(scales.data[query.request * scales.request_stride +
                                                     head / group * scales.head_stride]);
      };
      const ReferenceRow of{query, head, args.kv.k_scale * scale(args.q_scales) * scale(args.k_scales),
                            args.kv.v_scale * scale(args.v_scales)};
      write_row(args.out, args.lse, query.token, head, attend_row(args, of, get_score, get_value));
    }
  });
}

void mla(const MlaArgs& args) {
  check(args);
  const int64_t rank = args.q.shape[2], rope_dim = args.q_rope.shape[2];
  const int32_t page_size = args.index.page_size;
  for_each_query(args.batch, args.attention_mask, args.out, args.lse, [&](const Query& query) {
    for (int64_t head = 0; head < args.q.shape[1]; ++head) {
      const std::vector<double> q = load_row(args.q, offset(args.q, query.token, head), rank);
      const std::vector<double> q_rope =
          load_row(args.q_rope, offset(args.q_rope, query.token, head), rope_dim);
      const auto latent_slot = [&](int32_t k) {
        return offset(args.latent, find_page(args.index, query.request, k), k % page_size);
      };
      const auto get_score = [&](int32_t k) {
        return dot(q, load_latent(args.latent, latent_slot(k), 0, rank)) +
               dot(q_rope, load_latent(args.latent, latent_slot(k), rank, rope_dim));
      };
      const auto get_value = [&](int32_t k) { return load_latent(args.latent, latent_slot(k), 0, rank); };
      const ReferenceRow of{query, head, args.scale_kv, args.scale_kv};
      Row row = attend_row(args, of, get_score, get_value);
      if (row.lse == kEmptyLse) row.lse = args.empty_lse;
      write_row(args.out, args.lse, query.token, head, row);
    }
  });
}

}  // namespace attend::kernels::reference
