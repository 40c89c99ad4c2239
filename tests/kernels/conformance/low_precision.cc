#include "tests/kernels/conformance/low_precision.h"

#include <algorithm>
#include <cmath>

#include "attend/kernels/attention/reference_mask.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/metadata/find_page.h"
#include "tests/kernels/conformance/rounded.h"

namespace attend::conformance {
namespace {

using kernels::AttentionArgs;
using kernels::reference::load;
using kernels::reference::offset;
using kernels::reference::Query;

// K and V of one request and head as float32, converted when a row is first read.
class Rows {
 public:
  Rows(const AttentionArgs& args, int request, int64_t kv_head)
      : args_(args),
        request_(request),
        kv_head_(kv_head),
        k_(static_cast<size_t>(args.batch.seqlen_kv[static_cast<size_t>(request)])),
        v_(k_.size()) {}

  const std::vector<float>& k(int32_t p) { return row(args_.kv.k, k_, p); }
  const std::vector<float>& v(int32_t p) { return row(args_.kv.v, v_, p); }

 private:
  const std::vector<float>& row(const TensorView& pool, std::vector<std::vector<float>>& rows, int32_t p) {
    std::vector<float>& elements = rows[static_cast<size_t>(p)];
    if (!elements.empty()) return elements;
    const int32_t page_size = args_.kv.index.page_size;
    const int64_t start = offset(pool, find_page(args_.kv.index, request_, p), p % page_size, kv_head_);
    elements.resize(static_cast<size_t>(pool.shape[3]));
    for (size_t d = 0; d < elements.size(); ++d)
      elements[d] = static_cast<float>(load(pool, start + static_cast<int64_t>(d)));
    return elements;
  }

  const AttentionArgs& args_;
  int request_;
  int64_t kv_head_;
  std::vector<std::vector<float>> k_, v_;
};

struct Score {
  int32_t key;
  float value;
};

float get_scale(const kernels::HeadScales& scales, int request, int64_t kv_head) {
  return scales.data == nullptr ? 1.0f
                                : scales.data[request * scales.request_stride + kv_head * scales.head_stride];
}

LowPrecisionRow attend_row(const AttentionArgs& args, const Query& query, int64_t head, Rows& rows) {
  const int64_t kv_head = head / (args.q.shape[1] / args.kv.k.shape[2]);
  const auto head_dim_qk = static_cast<size_t>(args.q.shape[2]),
             head_dim_v = static_cast<size_t>(args.out.shape[2]);
  const float scale = args.score.scale * args.kv.k_scale * get_scale(args.q_scales, query.request, kv_head) *
                      get_scale(args.k_scales, query.request, kv_head);
  const float cap = args.score.logit_cap;
  LowPrecisionRow row{.out = std::vector<float>(head_dim_v, 0.0f)};

  std::vector<float> q(head_dim_qk);
  for (size_t d = 0; d < head_dim_qk; ++d)
    q[d] = static_cast<float>(load(args.q, offset(args.q, query.token, head, d)));
  std::vector<Score> scores;
  float largest = kernels::kEmptyLse;
  for (int32_t key = 0; key < query.seqlen_kv; ++key) {
    if (!sees(args.batch, args.attention_mask, query, key)) continue;
    const std::vector<float>& k = rows.k(key);
    float dot = 0.0f, magnitude = 0.0f;
    for (size_t d = 0; d < head_dim_qk; ++d) {
      dot += q[d] * k[d];
      magnitude += std::abs(q[d] * k[d]);
    }
    float score = scale * dot;
    if (cap > 0.0f) score = cap * std::tanh(score / cap);
    scores.push_back({key, score});
    largest = std::max(largest, score);
    row.largest_score = std::max(row.largest_score, static_cast<double>(std::abs(scale) * magnitude + cap));
  }
  if (scores.empty()) return row;

  // Scales P to use the range of e4m3 up to 448, so that small values keep their bits.
  const float p_unit = args.q.dtype == DType::kF8E4M3 ? 256.0f : 1.0f;
  const Rounding p_rounding = rounding_for(args.q.dtype), out_rounding = rounding_for(args.out.dtype);
  std::vector<double> p_noise(head_dim_v), magnitude(head_dim_v);
  float sum = 0.0f;
  for (const Score& score : scores) {
    const float weight = std::exp(score.value - largest);
    sum += weight;
    const float p = rounded(args.q.dtype, weight * p_unit) / p_unit;
    const double p_error = p_rounding.of(static_cast<double>(weight * p_unit)) / static_cast<double>(p_unit);
    const std::vector<float>& v = rows.v(score.key);
    for (size_t d = 0; d < head_dim_v; ++d) {
      row.out[d] += p * v[d];
      p_noise[d] += p_error * p_error * static_cast<double>(v[d]) * static_cast<double>(v[d]);
      magnitude[d] += static_cast<double>(weight) * std::abs(static_cast<double>(v[d]));
    }
  }
  row.lse = largest + std::log(sum);
  const float sink =
      args.score.sinks.empty() ? 0.0f : std::exp(args.score.sinks[static_cast<size_t>(head)] - largest);
  const float factor = args.kv.v_scale * get_scale(args.v_scales, query.request, kv_head) / (sum + sink);
  double noise = 0.0, square = 0.0;
  for (size_t d = 0; d < head_dim_v; ++d) {
    row.out[d] = rounded(args.out.dtype, row.out[d] * factor);
    const double out_error = out_rounding.of(row.out[d]);
    // Rounding errors are uniform within their bounds, so their variance is a third of the squared bound.
    noise += (p_noise[d] * factor * factor + out_error * out_error) / 3.0;
    square += magnitude[d] * factor * magnitude[d] * factor;
  }
  row.noise = std::sqrt(noise / static_cast<double>(head_dim_v));
  row.magnitude = std::sqrt(square / static_cast<double>(head_dim_v));
  return row;
}

}  // namespace

double Rounding::of(double value) const { return std::max(relative * std::abs(value), absolute); }

Rounding rounding_for(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {0x1p-24, 0x1p-150};
    case DType::kF16:
      return {0x1p-11, 0x1p-25};
    case DType::kBF16:
      return {0x1p-8, 0x1p-134};
    case DType::kF8E4M3:
      return {0x1p-4, 0x1p-10};
    default:
      fail(ErrorCode::kInternal, "no activation has dtype ", dtype);
  }
}

std::vector<LowPrecisionRow> low_precision_attention(const AttentionArgs& args) {
  const int64_t num_heads = args.q.shape[1], num_kv_heads = args.kv.k.shape[2];
  const LowPrecisionRow empty{.out = std::vector<float>(static_cast<size_t>(args.out.shape[2]), 0.0f)};
  std::vector<LowPrecisionRow> result(static_cast<size_t>(args.q.shape[0] * num_heads), empty);
  for (int request = 0; request < args.batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    for (int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
      Rows rows(args, request, kv_head);
      const int64_t group = num_heads / num_kv_heads;
      for (int j = 0; j < args.batch.cu_seqlen_q[r + 1] - args.batch.cu_seqlen_q[r]; ++j) {
        const Query query = kernels::reference::make_query(args.batch, args.attention_mask, request, j);
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
          result[static_cast<size_t>(query.token * num_heads + head)] = attend_row(args, query, head, rows);
      }
    }
  }
  return result;
}

}  // namespace attend::conformance
