#include "attend/bench/attention/case_tensors.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/kernels/attention/cpu/attention.h"

namespace attend::bench {
namespace {

// Uses a fixed seed, so that runs are equal.
using Random = std::mt19937;

void fill(const TensorView& tensor, Random& random) {
  std::normal_distribution<float> normal;
  visit_float_dtype(tensor.dtype, [&]<class T>(TypeTag<T>) {
    for (T& element : tensor.span<T>()) element = T(normal(random));
  });
}

// Fills memory with a repeated block of random values: time does not depend on the values, and this fills
// gigabytes quickly.
void fill_memory(std::span<std::byte> memory, DType dtype, Random& random) {
  constexpr int64_t kRepeatBytes = 1 << 18;
  const Tensor rows = Tensor::empty({kRepeatBytes / static_cast<int64_t>(size_of(dtype))}, dtype);
  fill(rows, random);
  for (size_t at = 0; at < memory.size(); at += kRepeatBytes)
    std::memcpy(memory.data() + at, rows.view().data, std::min<size_t>(kRepeatBytes, memory.size() - at));
}

}  // namespace

size_t memory_resident_bytes() {
  constexpr long kUnknownCache = 64 << 20;
  long last_level = sysconf(_SC_LEVEL4_CACHE_SIZE);
  if (last_level <= 0) last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (last_level <= 0) last_level = kUnknownCache;
  return 4 * static_cast<size_t>(last_level);
}

CaseTensors::CaseTensors(const AttentionCase& spec, std::span<std::byte> memory) : spec_(spec) {
  Random random(1);
  const int pages_per_request = ceil_div(spec.seqlen_kv, spec.page_size);
  num_pages_ = spec.batch * pages_per_request;
  layer_bytes_ = spec.kv_bytes() / spec.num_keys() * num_pages_ * spec.page_size;
  const int64_t fitting = static_cast<int64_t>(memory.size()) / layer_bytes_;
  ensure(fitting >= 1, "bench memory of ", memory.size(), " bytes: a layer needs ", layer_bytes_);
  num_layers_ = spec.residency == Residency::kCache ? 1 : static_cast<int>(fitting);
  memory_ = memory.first(static_cast<size_t>(num_layers_ * layer_bytes_));
  fill_memory(memory_, spec.kv_dtype, random);

  q_ = Tensor::empty({spec.num_tokens(), spec.num_q_heads, spec.head_dim}, spec.q_dtype);
  fill(q_, random);
  if (spec.is_mla()) {
    q_rope_ = Tensor::empty({spec.num_tokens(), spec.num_q_heads, spec.mla_rope_dim}, spec.q_dtype);
    fill(q_rope_, random);
  }
  out_ = Tensor::zeros({spec.num_tokens(), spec.num_q_heads, spec.head_dim}, spec.q_dtype);
  for (int r = 0; r <= spec.batch; ++r) cu_seqlen_q_.push_back(r * spec.seqlen_q);
  seqlen_kv_.assign(static_cast<size_t>(spec.batch), spec.seqlen_kv);
  // Pages in random order, as a pool returns them after hours of use.
  page_table_.resize(static_cast<size_t>(num_pages_));
  std::iota(page_table_.begin(), page_table_.end(), 0);
  std::shuffle(page_table_.begin(), page_table_.end(), random);
}

std::span<const std::byte> CaseTensors::kv_bytes(int layer) const {
  return memory_.subspan(static_cast<size_t>(layer * layer_bytes_), static_cast<size_t>(layer_bytes_));
}

kernels::QueryBatch CaseTensors::batch() const {
  return {.cu_seqlen_q = cu_seqlen_q_, .seqlen_kv = seqlen_kv_, .max_seqlen_q = spec_.seqlen_q};
}

kernels::AttentionPlanLimits CaseTensors::limits(int num_threads) const {
  return {.max_reqs = spec_.batch,
          .max_tokens = static_cast<int>(spec_.num_tokens()),
          .max_kv_tokens = spec_.num_keys(),
          .num_q_heads = spec_.num_q_heads,
          .num_kv_heads = spec_.num_kv_heads,
          .head_dim_v = spec_.head_dim,
          .num_workers = num_threads};
}

void CaseTensors::attend(int layer, kernels::AttentionPlan& plan, kernels::cpu::Isa isa) const {
  if (spec_.is_mla())
    kernels::cpu::mla(mla_args(layer), plan, isa);
  else
    kernels::cpu::attention(attention_args(layer), plan, isa);
}

kernels::KvIndex CaseTensors::index() const {
  return {.kind = kernels::KvIndexKind::kPageTable,
          .page_size = spec_.page_size,
          .table = page_table_.data(),
          .table_stride = num_pages_ / spec_.batch};
}

// Pages in the layout of CPU pools, heads in sequence: [num_pages, page_size, num_kv_heads, dim].
TensorView CaseTensors::pages(int layer, int64_t offset_bytes, int dim) const {
  return TensorView::contiguous(memory_.data() + layer * layer_bytes_ + offset_bytes, spec_.kv_dtype,
                                {num_pages_, spec_.num_kv_heads, spec_.page_size, dim})
      .transpose(1, 2);
}

kernels::AttentionArgs CaseTensors::attention_args(int layer) const {
  return {.q = q_,
          .out = out_,
          .lse = {},
          .kv = {.k = pages(layer, 0, spec_.head_dim),
                 .v = pages(layer, layer_bytes_ / 2, spec_.head_dim),
                 .index = index()},
          .batch = batch(),
          .attention_mask = {},
          .score = {.scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim))}};
}

kernels::MlaArgs CaseTensors::mla_args(int layer) const {
  const int dim = spec_.head_dim + spec_.mla_rope_dim;
  return {.q = q_,
          .q_rope = q_rope_,
          .out = out_,
          .lse = {},
          .latent = TensorView::contiguous(memory_.data() + layer * layer_bytes_, spec_.kv_dtype,
                                           {num_pages_, spec_.page_size, dim}),
          .index = index(),
          .batch = batch(),
          .attention_mask = {},
          .score = {.scale = 1.0f / std::sqrt(static_cast<float>(dim))}};
}

}  // namespace attend::bench
