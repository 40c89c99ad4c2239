#include "tests/kernels/cpu/small_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend/base/math.h"

namespace attend::kernels {
namespace {

// Random values in about [-1.7, 1.7] that depend only on the key (splitmix64).
float random_at(uint64_t key) {
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  key ^= key >> 31;
  return static_cast<float>(static_cast<double>(key) * 0x1p-64 - 0.5) * 3.4f;
}

enum class Role : uint64_t { kQuery, kKey, kValue };

void fill_row(const TensorView& row, Role role, int sequence, int64_t position, int head) {
  const uint64_t key = ((static_cast<uint64_t>(role) * 64 + static_cast<uint64_t>(sequence)) * 65536 +
                        static_cast<uint64_t>(position)) *
                           256 +
                       static_cast<uint64_t>(head);
  visit_float_dtype(row.dtype, [&]<class T>(TypeTag<T>) {
    for (int64_t d = 0; d < row.shape[0]; ++d)
      row.as<T>()[d] = T(random_at(key * 1024 + static_cast<uint64_t>(d)));
  });
}

}  // namespace

SmallStep::SmallStep(const StepConfig& config, const std::vector<StepRequest>& requests) : config_(config) {
  cu_seqlen_q_.push_back(0);
  int num_pages = 1;
  for (const StepRequest& request : requests) {
    cu_seqlen_q_.push_back(cu_seqlen_q_.back() + request.seqlen_q);
    seqlen_kv_.push_back(request.seqlen_kv);
    table_width_ = std::max(table_width_, ceil_div(request.seqlen_kv, config.page_size));
    num_pages += ceil_div(request.seqlen_kv, config.page_size);
  }
  const int64_t num_tokens = cu_seqlen_q_.back(), d = config.head_dim;
  q_ = Tensor::zeros({num_tokens, config.num_q_heads, d}, config.q_dtype);
  out_ = Tensor::zeros({num_tokens, config.num_q_heads, d}, DType::kF32);
  lse_ = Tensor::zeros({num_tokens, config.num_q_heads}, DType::kF32);
  k_ = Tensor::zeros({num_pages, config.page_size, config.num_kv_heads, d}, config.kv_dtype);
  v_ = Tensor::zeros({num_pages, config.page_size, config.num_kv_heads, d}, config.kv_dtype);
  table_.assign(requests.size() * static_cast<size_t>(table_width_), 0x7fffff00);

  int next_page = 1;
  for (size_t r = 0; r < requests.size(); ++r) {
    const StepRequest& request = requests[r];
    for (int32_t p = 0; p < request.seqlen_kv; ++p) {
      int32_t& page =
          table_[r * static_cast<size_t>(table_width_) + static_cast<size_t>(p / config.page_size)];
      if (p % config.page_size == 0) page = next_page++;
      for (int head = 0; head < config.num_kv_heads; ++head) {
        fill_row(k_.view()[page][p % config.page_size][head], Role::kKey, request.sequence, p, head);
        fill_row(v_.view()[page][p % config.page_size][head], Role::kValue, request.sequence, p, head);
      }
    }
    for (int32_t j = 0; j < request.seqlen_q; ++j)
      for (int head = 0; head < config.num_q_heads; ++head)
        fill_row(q_.view()[cu_seqlen_q_[r] + j][head], Role::kQuery, request.sequence,
                 request.seqlen_kv - request.seqlen_q + j, head);
  }
}

QueryBatch SmallStep::batch() const {
  int32_t max_seqlen_q = 0;
  for (size_t r = 0; r + 1 < cu_seqlen_q_.size(); ++r)
    max_seqlen_q = std::max(max_seqlen_q, cu_seqlen_q_[r + 1] - cu_seqlen_q_[r]);
  return {.cu_seqlen_q = cu_seqlen_q_, .seqlen_kv = seqlen_kv_, .max_seqlen_q = max_seqlen_q};
}

AttentionArgs SmallStep::args() const {
  return {.q = q_,
          .out = out_,
          .lse = lse_,
          .kv = {.k = k_,
                 .v = v_,
                 .index = {.kind = KvIndexKind::kPageTable,
                           .page_size = config_.page_size,
                           .table = table_.data(),
                           .table_stride = table_width_}},
          .batch = batch(),
          .attention_mask = config_.attention_mask,
          .score = {.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))}};
}

AttentionPlanLimits SmallStep::limits() const {
  int64_t num_kv_tokens = 0;
  for (int32_t seqlen : seqlen_kv_) num_kv_tokens += seqlen;
  return {.max_reqs = static_cast<int>(seqlen_kv_.size()),
          .max_tokens = cu_seqlen_q_.back(),
          .max_kv_tokens = num_kv_tokens,
          .num_q_heads = config_.num_q_heads,
          .num_kv_heads = config_.num_kv_heads,
          .head_dim_v = config_.head_dim,
          .num_workers = 2};
}

std::vector<uint8_t> SmallStep::result(int r, int j) const {
  const int64_t token = cu_seqlen_q_[static_cast<size_t>(r)] + j;
  std::vector<uint8_t> bytes;
  for (const TensorView& row : {out_.view()[token], lse_.view()[token]}) {
    const auto* data = static_cast<const uint8_t*>(row.data);
    bytes.insert(bytes.end(), data, data + row.num_bytes());
  }
  return bytes;
}

void SmallStep::poison_results() {
  std::memset(out_.view().data, 0xff, out_.view().num_bytes());
  std::memset(lse_.view().data, 0xff, lse_.view().num_bytes());
}

}  // namespace attend::kernels
