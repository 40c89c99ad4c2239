#include "attend/kernels/attention/cpu/tile_scratch.h"

#include <algorithm>

namespace attend::kernels::cpu {
namespace {

// Hands out aligned pieces of memory; with a null base it only counts.
struct Carver {
  char* base;
  size_t used = 0;

  template <class T>
  T* take(size_t count) {
    T* piece = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    used += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
};

void carve(const TileShape& shape, Carver& carver, TileScratch& scratch) {
  const auto rows = static_cast<size_t>(shape.num_rows());
  const auto stride_qk = static_cast<size_t>(shape.stride_qk());
  const auto stride_v = static_cast<size_t>(shape.stride_v());
  // One vector more: packing a row writes whole vectors from the start of its second part.
  scratch.q = carver.take<float>(rows * stride_qk * 3 / 2 + 16);
  scratch.k = carver.take<float>(stride_qk * kTileKeys);
  scratch.v = carver.take<float>(kTileKeys * stride_v);
  scratch.rows = carver.take<uint16_t>(kTileKeys * stride_qk);
  scratch.scores = carver.take<float>(rows * kTileKeys);
  scratch.p = carver.take<uint16_t>(rows * 3 * kTileKeys);
  scratch.query = carver.take<float>(stride_qk + 16);
  scratch.acc = carver.take<float>(rows * stride_v);
  scratch.row_max = carver.take<float>(rows);
  scratch.row_sum = carver.take<float>(rows * 16);
  scratch.row_rescale = carver.take<float>(rows);
  scratch.merged = carver.take<float>(shape.merges_splits ? rows * stride_v : 0);
  scratch.merged_lse = carver.take<float>(shape.merges_splits ? rows : 0);
  scratch.visible = carver.take<VisibleKeys>(static_cast<size_t>(shape.num_tokens));
  scratch.visible_words = carver.take<uint64_t>(2 * static_cast<size_t>(shape.num_tokens));
}

}  // namespace

int q_tile_tokens(const AttentionPlanLimits& limits) {
  const int group = limits.num_q_heads / limits.num_kv_heads;
  return std::clamp(kTileRows / group, 1, std::max(1, limits.max_tokens));
}

TileShape TileShape::of(const AttentionPlanLimits& limits) {
  constexpr int kMaxMlaRopeDim = 64;
  return {.num_tokens = q_tile_tokens(limits),
          .group = limits.num_q_heads / limits.num_kv_heads,
          .head_dim_qk = std::max(256, limits.head_dim_v + kMaxMlaRopeDim),
          .head_dim_v = limits.head_dim_v,
          .merges_splits = limits.split_rule == SplitRule::kFixed};
}

TileScratch::TileScratch(const TileShape& shape, void* memory) {
  Carver carver{static_cast<char*>(memory)};
  carve(shape, carver, *this);
}

size_t TileScratch::num_bytes(const TileShape& shape) {
  Carver carver{nullptr};
  TileScratch counted(shape, nullptr);
  carve(shape, carver, counted);
  return carver.used;
}

}  // namespace attend::kernels::cpu
