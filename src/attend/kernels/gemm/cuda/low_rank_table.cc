#include "attend/kernels/gemm/cuda/low_rank_table.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/kernels/common/element.h"

namespace attend::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;

int64_t padded_rank(const LowRankTerm& term) { return round_up(term.rank(), int64_t{kRankMultiple}); }

// to[column * stride + row] = from[row, column]: A and B are transposed in host memory.
void write_transposed(const TensorView& from, DType dtype, std::byte* to, int64_t stride) {
  visit_float_dtype(dtype, [&]<class To>(TypeTag<To>) {
    visit_float_dtype(from.dtype, [&]<class From>(TypeTag<From>) {
      To* const out = reinterpret_cast<To*>(to);
      for (int64_t row = 0; row < from.shape[0]; ++row) {
        const From* const values = from[row].as<const From>();
        for (int64_t column = 0; column < from.shape[1]; ++column)
          out[column * stride + row] = To(static_cast<float>(values[column]));
      }
    });
  });
}

}  // namespace

int choose_segment_tokens(int64_t num_tokens, bool in_graph) {
  constexpr int64_t kManyTokens = 2048;
  return !in_graph && num_tokens >= kManyTokens ? kLargeSegment : kSmallSegment;
}

LowRankGrid choose_shrink_grid(int64_t in_features, const LowRankArrays& arrays, int num_sms) {
  // CTAs of a graph that find no segment cost more than a second segment of others.
  constexpr int64_t kCtasPerSm = 3;
  const int64_t items = std::max(1, arrays.max_segments) * ceil_div(in_features, int64_t{kLowRankBlockK});
  const int64_t most = arrays.segment_tokens == kSmallSegment ? kCtasPerSm * num_sms : int64_t{1} << 16;
  return {.x = std::min(items, most)};
}

int choose_expand_outs(int segment_tokens) { return segment_tokens == kSmallSegment ? 256 : 1024; }

LowRankGrid choose_expand_grid(int64_t out_features, const LowRankArrays& arrays, int num_sms) {
  constexpr int64_t kCtasPerSm = 8;
  // Terms begin a CTA's outputs anew. A CTA takes several parts if there are more terms.
  constexpr int64_t kMoreTerms = 2;
  const int64_t x = ceil_div(out_features, int64_t{choose_expand_outs(arrays.segment_tokens)}) + kMoreTerms;
  const int64_t most =
      arrays.segment_tokens == kSmallSegment ? std::max<int64_t>(1, kCtasPerSm * num_sms / x) : 1 << 15;
  return {.x = x, .y = std::clamp<int64_t>(arrays.max_segments, 1, most)};
}

LowRankGrid choose_gate_grid(int64_t intermediate, const LowRankArrays& arrays, int num_sms) {
  constexpr int64_t kCtasPerSm = 8;
  const int64_t x = ceil_div(intermediate, int64_t{kGateOuts});
  return {.x = x,
          .y = std::clamp<int64_t>(arrays.max_segments, 1, std::max<int64_t>(1, kCtasPerSm * num_sms / x))};
}

LowRankTable::LowRankTable(const LowRankAdapter& adapter, DType dtype) : adapter_(adapter), dtype_(dtype) {
  const auto element_bytes = static_cast<int64_t>(size_of(dtype));
  const auto add = [&](int64_t bytes) {
    const int64_t offset = num_bytes_;
    num_bytes_ = round_up(offset + bytes, kAlignment);
    return offset;
  };
  add((std::ssize(adapter.layers) + 1) * static_cast<int64_t>(sizeof(LowRankLayerEntry)));
  for (const std::vector<LowRankTerm>& terms : adapter.layers) {
    Layer& layer = layers_.emplace_back();
    if (terms.size() > kMaxTerms)
      fail(ErrorCode::kUnsupported, "an adapter with ", terms.size(), " terms of a layer: expected at most ",
           kMaxTerms, " on a GPU");
    layer.in_features = terms.empty() ? 0 : round_up(terms.front().a.shape[0], int64_t{kInsMultiple});
    layer.rank = 0;
    for (const LowRankTerm& term : terms) {
      layer.ranks.push_back(padded_rank(term));
      layer.rank += layer.ranks.back();
    }
    layer.a = add(layer.rank * layer.in_features * element_bytes);
    for (size_t i = 0; i < terms.size(); ++i)
      layer.bs.push_back(
          add(round_up(terms[i].b.shape[1], int64_t{kOutsMultiple}) * layer.ranks[i] * element_bytes));
    if (terms.empty()) continue;
    const int64_t num_blocks = ceil_div(terms.front().a.shape[0], int64_t{kLowRankBlockK});
    row_floats_ = std::max(row_floats_, kRowHeader + num_blocks * layer.rank);
  }
}

void LowRankTable::write(std::byte* to, uintptr_t base) const {
  const auto element_bytes = static_cast<int64_t>(size_of(dtype_));
  const auto address = [&](int64_t offset) {
    return reinterpret_cast<void*>(base + static_cast<size_t>(offset));
  };
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const std::vector<LowRankTerm>& terms = adapter_.layers[i];
    LowRankLayerEntry& entry = reinterpret_cast<LowRankLayerEntry*>(to)[i];
    entry.layer = {.a = address(layer.a),
                   .num_terms = static_cast<int32_t>(terms.size()),
                   .rank = static_cast<int32_t>(layer.rank),
                   .in_stride = static_cast<int32_t>(layer.in_features),
                   .unused = 0};
    int64_t first_rank = 0;
    for (size_t j = 0; j < terms.size(); ++j) {
      const LowRankTerm& term = terms[j];
      ensure(term.a.shape[0] == terms.front().a.shape[0], "terms of a layer with ", term.a.shape[0], " and ",
             terms.front().a.shape[0], " inputs");
      entry.terms[j] = {.b = address(layer.bs[j]),
                        .scale = term.scale,
                        .first_out = static_cast<int32_t>(term.first_out),
                        .num_outputs = static_cast<int32_t>(term.b.shape[1]),
                        .rank = static_cast<int32_t>(layer.ranks[j]),
                        .first_rank = static_cast<int32_t>(first_rank),
                        .unused = 0};
      write_transposed(term.a, dtype_, to + layer.a + first_rank * layer.in_features * element_bytes,
                       layer.in_features);
      write_transposed(term.b, dtype_, to + layer.bs[j], layer.ranks[j]);
      first_rank += layer.ranks[j];
    }
  }
}

}  // namespace attend::kernels::cuda
