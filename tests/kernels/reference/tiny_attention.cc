#include "tests/kernels/reference/tiny_attention.h"

#include <numeric>

namespace attend::conformance {

TinyAttention::TinyAttention(int seqlen_q, std::vector<float> scores, std::vector<float> values)
    : cu_seqlen_q_{0, seqlen_q},
      seqlen_kv_{static_cast<int32_t>(scores.size())},
      cu_seqlen_kv_{0, seqlen_kv_[0]} {
  const auto num_tokens = static_cast<size_t>(seqlen_q);
  // At least one element even without tokens or keys, since an empty view means "not passed".
  q_.resize(num_tokens * kHeadDim + 1);
  out_.resize(num_tokens * kHeadDim + 1);
  lse_.resize(num_tokens + 1);
  k_.resize(scores.size() * kHeadDim + 1);
  v_.resize(scores.size() * kHeadDim + 1);
  for (size_t token = 0; token < num_tokens; ++token) q_[token * kHeadDim] = 1.0f;
  for (size_t key = 0; key < scores.size(); ++key) {
    k_[key * kHeadDim] = scores[key];
    std::fill_n(v_.begin() + static_cast<std::ptrdiff_t>(key * kHeadDim), kHeadDim, values[key]);
  }
  args.q = TensorView::contiguous(q_.data(), DType::kF32, {seqlen_q, 1, kHeadDim});
  args.out = TensorView::contiguous(out_.data(), DType::kF32, {seqlen_q, 1, kHeadDim});
  args.lse = TensorView::contiguous(lse_.data(), DType::kF32, {seqlen_q, 1});
  args.kv.k = TensorView::contiguous(k_.data(), DType::kF32, {seqlen_kv_[0], 1, 1, kHeadDim});
  args.kv.v = TensorView::contiguous(v_.data(), DType::kF32, {seqlen_kv_[0], 1, 1, kHeadDim});
  args.kv.index.kind = kernels::KvIndexKind::kContiguous;
  args.kv.index.indptr = cu_seqlen_kv_.data();
  args.batch.cu_seqlen_q = cu_seqlen_q_;
  args.batch.seqlen_kv = seqlen_kv_;
  args.batch.max_seqlen_q = seqlen_q;
}

TinyAttention::Result TinyAttention::run() const {
  kernels::reference::attention(args);
  Result result;
  for (int64_t token = 0; token < args.q.shape[0]; ++token) {
    result.out.push_back(args.out[token].as<float>()[0]);
    result.lse.push_back(args.lse[token].as<float>()[0]);
  }
  return result;
}

std::vector<float> positions_as_values(int count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace attend::conformance
