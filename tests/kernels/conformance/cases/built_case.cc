#include "tests/kernels/conformance/cases/built_case.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>

#include "attend/kernels/common/element.h"
#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/conformance/cases/poison.h"
#include "tests/kernels/conformance/cases/random.h"
#include "tests/kernels/conformance/rounded.h"

namespace attend::conformance {
namespace {

using kernels::reference::load;
using kernels::reference::offset;
using kernels::reference::store;

constexpr int64_t kGap = 16;

// Standard deviation of q for a spread of scores: if k has deviation 1 and the scale is 1 / sqrt(head_dim),
// scores have the deviation of q.
float q_deviation(ScoreSpread spread) {
  switch (spread) {
    case ScoreSpread::kOrdinary:
      return 1.0f;
    case ScoreSpread::kFlat:
      return 0.02f;
    case ScoreSpread::kSharp:
      return 12.0f;
  }
  return 1.0f;
}

std::vector<float> normal_values(int64_t count, float deviation, DType dtype, Random random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rounded(dtype, deviation * random.normal());
  return values;
}

// Calls fn with every index of a view.
template <class Fn>
void for_each_element(const TensorView& view, const Fn& fn) {
  const auto count = view.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0;
    for (size_t dim = static_cast<size_t>(view.rank); dim-- > 0; rest /= view.shape[dim])
      at += rest % view.shape[dim] * view.strides[dim];
    fn(at);
  }
}

void fill_with_zeros(const TensorView& view) {
  for_each_element(view, [&](int64_t at) {
    std::memset(static_cast<char*>(view.data) + at * static_cast<int64_t>(size_of(view.dtype)), 0,
                size_of(view.dtype));
  });
}

}  // namespace

CaseValues::CaseValues(const AttentionCase& c) {
  cu_seqlen_kv.push_back(0);
  for (const Lengths& lengths : c.requests) cu_seqlen_kv.push_back(cu_seqlen_kv.back() + lengths.seqlen_kv);
  for (int i = 0; i < c.num_pad_reqs; ++i) cu_seqlen_kv.push_back(cu_seqlen_kv.back() + 1);
  const int64_t num_rows = cu_seqlen_kv.back();
  q = normal_values(int64_t{c.num_tokens()} * c.num_q_heads * c.head_dim_qk, q_deviation(c.spread), c.q_dtype,
                    Random(c.seed, 3));
  k = normal_values(num_rows * c.num_kv_heads * c.head_dim_qk, 1.0f, c.q_dtype, Random(c.seed, 4));
  v = normal_values(num_rows * c.num_kv_heads * c.head_dim_v, 1.0f, c.q_dtype, Random(c.seed, 5));
  if (c.sinks) sinks = normal_values(c.num_q_heads, 2.0f, DType::kF32, Random(c.seed, 6));
  const auto row_k = int64_t{c.num_kv_heads} * c.head_dim_qk, row_v = int64_t{c.num_kv_heads} * c.head_dim_v;
  const int64_t num_real_rows = cu_seqlen_kv[c.requests.size()];
  // The padding page is zero.
  std::fill(k.begin() + num_real_rows * row_k, k.end(), 0.0f);
  std::fill(v.begin() + num_real_rows * row_v, v.end(), 0.0f);
  if (c.shared_prefix)
    for (size_t r = 1; r < c.requests.size(); ++r) {
      const auto prefix_len = [](const Lengths& lengths) {
        return std::max(0, lengths.seqlen_kv - lengths.seqlen_q);
      };
      const int64_t shared =
          std::min(prefix_len(c.requests[0]), prefix_len(c.requests[r])) / c.page_size * c.page_size;
      std::copy_n(k.begin(), shared * row_k, k.begin() + cu_seqlen_kv[r] * row_k);
      std::copy_n(v.begin(), shared * row_v, v.begin() + cu_seqlen_kv[r] * row_v);
    }
}

BuiltCase::BuiltCase(const AttentionCase& c) : spec(c), tokens(c), index(c, tokens), values(c) {
  make_queries();
  if (c.is_mla())
    make_latent_pool();
  else
    make_pool();
  store_kv();
  make_results();
  args.kv.index = index.view(c);
  args.kv.k_scale = c.k_scale;
  args.kv.v_scale = c.is_mla() ? c.k_scale : c.v_scale;
  args.batch = {.cu_seqlen_q = tokens.cu_seqlen_q,
                .seqlen_kv = tokens.seqlen_kv,
                .max_seqlen_q = c.max_seqlen_q(),
                .max_seqlen_kv = c.short_requests ? kernels::kShortRequestMaxKeys : INT_MAX,
                .tree_mask = tokens.tree_mask,
                .tree_mask_words = tokens.tree_mask_words,
                .positions = {}};
  if (c.tree != TreeShape::kNone) args.batch.positions = tokens.positions;
  args.attention_mask = {
      .causal = c.causal, .window_left = c.window_left, .chunk = c.chunk, .window_right = c.window_right};
  args.score = {.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim_qk)),
                .logit_cap = c.logit_cap,
                .sinks = values.sinks};
  if (c.head_scales) make_head_scales();
  if (c.is_mla()) make_mla_args();
}

// Scales of q, K and V in three arrays of [num_reqs, num_kv_heads]; products of q's and K's are about 1.
void BuiltCase::make_head_scales() {
  const auto count = static_cast<size_t>(spec.num_reqs() * spec.num_kv_heads);
  Random random(spec.seed, 7);
  for (size_t i = 0; i < 3 * count; ++i)
    head_scales_.push_back(0.6f + 0.1f * static_cast<float>(random.below(8)));
  size_t begin = 0;
  for (kernels::HeadScales* scales : {&args.q_scales, &args.k_scales, &args.v_scales}) {
    *scales = {.data = head_scales_.data() + begin, .request_stride = spec.num_kv_heads, .head_stride = 1};
    begin += count;
  }
}

void BuiltCase::make_queries() {
  const int64_t gap = spec.strided ? kGap : 0, extra_head = spec.strided ? 1 : 0;
  q_ =
      Tensor::empty({spec.num_tokens(), spec.num_q_heads + extra_head, spec.head_dim_qk + gap}, spec.q_dtype);
  poison(q_);
  args.q = q_.view().slice(1, extra_head, spec.num_q_heads + extra_head).slice(2, 0, spec.head_dim_qk);
  size_t i = 0;
  for_each_element(args.q, [&](int64_t at) { store(args.q, at, values.q[i++]); });
}

void BuiltCase::make_pool() {
  const int64_t page_size = index.page_size, heads = spec.num_kv_heads;
  const bool head_major = spec.layout == KvLayout::kHeadMajor;
  const int64_t outer = head_major ? heads : page_size, inner = head_major ? page_size : heads;
  const auto as_view = [&](TensorView memory, int64_t dim) {  // memory: [num_pages, outer, inner, >= dim]
    TensorView view = memory.slice(3, 0, dim);
    if (head_major) {
      std::swap(view.shape[1], view.shape[2]);
      std::swap(view.strides[1], view.strides[2]);
    }
    return view;
  };
  if (spec.strided) {
    const int64_t dim = std::max(spec.head_dim_qk, spec.head_dim_v) + kGap;
    k_ = Tensor::empty({index.num_pages, 2, outer, inner, dim}, spec.kv_dtype);
    poison(k_);
    const auto half = [&](int64_t i) {
      TensorView memory = k_.view().slice(1, i, i + 1);
      memory.rank = 4;
      std::copy(memory.shape.begin() + 2, memory.shape.end(), memory.shape.begin() + 1);
      std::copy(memory.strides.begin() + 2, memory.strides.end(), memory.strides.begin() + 1);
      return memory;
    };
    args.kv.k = as_view(half(0), spec.head_dim_qk);
    args.kv.v = as_view(half(1), spec.head_dim_v);
    return;
  }
  k_ = Tensor::empty({index.num_pages, outer, inner, spec.head_dim_qk}, spec.kv_dtype);
  v_ = Tensor::empty({index.num_pages, outer, inner, spec.head_dim_v}, spec.kv_dtype);
  poison(k_);
  poison(v_);
  args.kv.k = as_view(k_, spec.head_dim_qk);
  args.kv.v = as_view(v_, spec.head_dim_v);
}

void BuiltCase::make_latent_pool() {
  const int64_t gap = spec.strided ? kGap : 0;
  const int64_t row = spec.kv_dtype == DType::kU8 ? kernels::kScaledRow.bytes : spec.head_dim_qk;
  k_ = Tensor::empty({index.num_pages, index.page_size, 1, row + gap}, spec.kv_dtype);
  poison(k_);
  args.kv.k = k_.view().slice(3, 0, row);
  args.kv.v = k_.view().slice(3, 0, spec.head_dim_v);
}

void BuiltCase::store_kv() {
  if (spec.index != kernels::KvIndexKind::kContiguous) {
    fill_with_zeros(args.kv.k.slice(0, 0, 1));
    fill_with_zeros(args.kv.v.slice(0, 0, 1));
  }
  const auto store_row = [&](const TensorView& pool, const std::vector<float>& rows, int64_t row,
                             int32_t slot, float scale) {
    const int64_t dim = pool.shape[3];
    if (kernels::has_scaled_rows(pool)) {
      const int64_t width = kernels::kScaledRow.width();
      std::vector<double> numbers;
      for (int64_t d = 0; d < width; ++d)
        numbers.push_back(static_cast<double>(rows[static_cast<size_t>(row * width + d)] / scale));
      return kernels::reference::store_scaled_row(
          pool, offset(pool, slot / index.page_size, slot % index.page_size), numbers);
    }
    for (int64_t head = 0; head < pool.shape[2]; ++head)
      for (int64_t d = 0; d < dim; ++d)
        store(pool, offset(pool, slot / index.page_size, slot % index.page_size, head, d),
              rows[static_cast<size_t>((row * pool.shape[2] + head) * dim + d)] / scale);
  };
  for (int request = 0; request < spec.num_reqs(); ++request) {
    const PositionRange range = unmasked_range(spec, tokens, request);
    for (int32_t p = range.first; p < range.end; ++p) {
      const int64_t row = values.cu_seqlen_kv[static_cast<size_t>(request)] + p;
      const int32_t slot = index.slot(request, p);
      store_row(args.kv.k, values.k, row, slot, spec.k_scale);
      if (!spec.is_mla()) store_row(args.kv.v, values.v, row, slot, spec.v_scale);
    }
  }
}

void BuiltCase::make_results() {
  const int64_t gap = spec.strided ? kGap : 0;
  out_ = Tensor::empty({spec.num_tokens(), spec.num_q_heads + gap, spec.head_dim_v + gap}, spec.out_dtype);
  args.out = out_.view().slice(1, 0, spec.num_q_heads).slice(2, 0, spec.head_dim_v);
  if (spec.lse) {
    lse_ = Tensor::empty({spec.num_tokens(), spec.num_q_heads + gap}, DType::kF32);
    args.lse = lse_.view().slice(1, 0, spec.num_q_heads);
  }
  poison_results();
}

void BuiltCase::make_mla_args() {
  TensorView latent = args.kv.k;
  latent.rank = 3;
  latent.shape[2] = latent.shape[3];
  latent.strides[2] = 1;
  mla_args = {.q = args.q.slice(2, 0, spec.head_dim_v),
              .q_rope = args.q.slice(2, spec.head_dim_v, spec.head_dim_qk),
              .out = args.out,
              .lse = args.lse,
              .latent = latent,
              .index = args.kv.index,
              .scale_kv = args.kv.k_scale,
              .batch = args.batch,
              .attention_mask = args.attention_mask,
              .score = args.score,
              // Both conventions for the LSE of empty rows.
              .empty_lse = spec.seed % 2 == 0 ? kernels::kEmptyLse : -kernels::kEmptyLse};
}

void BuiltCase::poison_results() {
  poison(out_);
  poison(lse_);
}

bool BuiltCase::gaps_untouched() const {
  const auto untouched = [](const Tensor& storage, const TensorView& results) {
    if (results.empty()) return true;
    const auto* bytes = static_cast<const unsigned char*>(storage.view().data);
    std::vector<unsigned char> left(bytes, bytes + storage.view().num_bytes());
    const size_t size = size_of(results.dtype);
    const auto start = static_cast<size_t>(static_cast<const unsigned char*>(results.data) - bytes);
    for_each_element(results, [&](int64_t at) {
      std::memset(left.data() + start + static_cast<size_t>(at) * size, kPoisonByte, size);
    });
    return std::all_of(left.begin(), left.end(), [](unsigned char byte) { return byte == kPoisonByte; });
  };
  return untouched(out_, args.out) && untouched(lse_, args.lse);
}

std::vector<unsigned char> BuiltCase::result_bytes() const {
  std::vector<unsigned char> bytes;
  for (const TensorView& results : {args.out, args.lse}) {
    if (results.empty()) continue;
    const size_t size = size_of(results.dtype);
    for_each_element(results, [&](int64_t at) {
      const auto* element = static_cast<const unsigned char*>(results.data) + static_cast<size_t>(at) * size;
      bytes.insert(bytes.end(), element, element + size);
    });
  }
  return bytes;
}

}  // namespace attend::conformance
