// Specification of the indexer and of sparse MLA, in float64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attend/kernels/attention/reference_mask.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/indexer/sparse_mla.h"
#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::reference {
namespace {

double inner_product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Calls fn(query) for every query of the batch.
template <class Fn>
void for_each_causal_query(const QueryBatch& batch, const Fn& fn) {
  for (int request = 0; request < batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    for (int j = 0; j < batch.cu_seqlen_q[r + 1] - batch.cu_seqlen_q[r]; ++j)
      fn(make_query(batch, AttentionMask{}, request, j));
  }
}

// Score of a key that the query sees.
double index_score(const SelectKeysArgs& args, const Query& query, int32_t key) {
  const int64_t head_dim = args.q.shape[2];
  const int32_t page = find_page(args.index, query.request, key);
  const std::vector<double> k = load_row(args.k, offset(args.k, page, key % args.index.page_size), head_dim);
  double score = 0.0;
  for (int64_t head = 0; head < args.q.shape[1]; ++head) {
    const std::vector<double> q = load_row(args.q, offset(args.q, query.token, head), head_dim);
    score += load(args.weights, offset(args.weights, query.token, head)) * std::max(0.0, inner_product(q, k));
  }
  return score;
}

}  // namespace

void index_scores(const SelectKeysArgs& args, int max_keys, View<double> scores) {
  std::ranges::fill(scores, -std::numeric_limits<double>::infinity());
  for_each_causal_query(args.batch, [&](const Query& query) {
    for (int32_t key = 0; key <= query.position; ++key)
      scores[static_cast<size_t>(int64_t{query.token} * max_keys + key)] = index_score(args, query, key);
  });
}

void select_keys(const SelectKeysArgs& args, const SelectedKeys& to) {
  std::ranges::fill(to.counts, 0);
  for_each_causal_query(args.batch, [&](const Query& query) {
    std::vector<double> scores;
    for (int32_t key = 0; key <= query.position; ++key) scores.push_back(index_score(args, query, key));
    std::vector<int32_t> keys(scores.size());
    std::iota(keys.begin(), keys.end(), 0);
    std::ranges::stable_sort(keys, [&](int32_t a, int32_t b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    keys.resize(std::min(keys.size(), static_cast<size_t>(to.width)));
    std::ranges::sort(keys);
    to.counts[static_cast<size_t>(query.token)] = static_cast<int32_t>(keys.size());
    for (size_t i = 0; i < keys.size(); ++i)
      to.slots[static_cast<size_t>(query.token) * static_cast<size_t>(to.width) + i] =
          find_page(args.index, query.request, keys[i]) * args.index.page_size +
          keys[i] % args.index.page_size;
  });
}

void sparse_mla(const SparseMlaArgs& args, const SelectedKeys& keys) {
  const int64_t rank = args.q.shape[2], rope_dim = args.q_rope.shape[2], page_size = args.latent.shape[1];
  const auto scale_kv = static_cast<double>(args.scale_kv), cap = static_cast<double>(args.score.logit_cap);
  for (int64_t token = 0; token < args.q.shape[0]; ++token)
    for (int64_t head = 0; head < args.q.shape[1]; ++head) {
      const std::vector<double> q = load_row(args.q, offset(args.q, token, head), rank);
      const std::vector<double> q_rope = load_row(args.q_rope, offset(args.q_rope, token, head), rope_dim);
      const auto count = static_cast<size_t>(keys.counts[static_cast<size_t>(token)]);
      const auto row_at = [&](size_t i) {
        const int32_t slot = keys.slots[static_cast<size_t>(token) * static_cast<size_t>(keys.width) + i];
        return offset(args.latent, slot / page_size, slot % page_size);
      };
      std::vector<double> scores;
      for (size_t i = 0; i < count; ++i) {
        const double score = static_cast<double>(args.score.scale) * scale_kv *
                             (inner_product(q, load_latent(args.latent, row_at(i), 0, rank)) +
                              inner_product(q_rope, load_latent(args.latent, row_at(i), rank, rope_dim)));
        scores.push_back(cap > 0.0 ? cap * std::tanh(score / cap) : score);
      }
      const double row_max = count == 0 ? 0.0 : *std::ranges::max_element(scores);
      double sum = 0.0;
      std::vector<double> out(static_cast<size_t>(rank), 0.0);
      for (size_t i = 0; i < count; ++i) {
        const double p = std::exp(scores[i] - row_max);
        sum += p;
        const std::vector<double> value = load_latent(args.latent, row_at(i), 0, rank);
        for (size_t d = 0; d < out.size(); ++d) out[d] += p * scale_kv * value[d];
      }
      const double sink =
          args.score.sinks.empty()
              ? 0.0
              : std::exp(static_cast<double>(args.score.sinks[static_cast<size_t>(head)]) - row_max);
      for (size_t d = 0; d < out.size(); ++d)
        store(args.out, offset(args.out, token, head, d), count == 0 ? 0.0 : out[d] / (sum + sink));
      if (!args.lse.empty())
        store(args.lse, offset(args.lse, token, head), count == 0 ? kEmptyLse : row_max + std::log(sum));
    }
}

}  // namespace attend::kernels::reference
