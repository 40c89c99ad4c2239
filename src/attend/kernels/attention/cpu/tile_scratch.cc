#include "attend/kernels/attention/cpu/tile_scratch.h"

#include <algorithm>

namespace attend::kernels::cpu {
namespace {

// Allocates aligned pieces of memory; with a null base it only counts bytes.
struct ScratchAllocator {
  char* base;
  size_t used = 0;

  template <class T>
  T* take(size_t count) {
    T* piece = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
    used += (count * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
};

void allocate_scratch(const TileShape& shape, ScratchAllocator& allocator, TileScratch& scratch) {
  const auto rows = static_cast<size_t>(shape.num_rows());
  const auto stride_qk = static_cast<size_t>(shape.stride_qk());
  const auto stride_v = static_cast<size_t>(shape.stride_v());
  // One additional vector: packing a row writes whole vectors from the start of its second part.
  scratch.q = allocator.take<float>(rows * stride_qk * 3 / 2 + 16);
  scratch.k = allocator.take<float>(stride_qk * kTileKeys);
  scratch.v = allocator.take<float>(kTileKeys * stride_v);
  scratch.rows = allocator.take<uint16_t>(kTileKeys * stride_qk);
  scratch.scores = allocator.take<float>(rows * kTileKeys);
  scratch.p = allocator.take<uint16_t>(rows * 3 * kTileKeys);
  scratch.query = allocator.take<float>(stride_qk + 16);
  scratch.acc = allocator.take<float>(rows * stride_v);
  scratch.row_max = allocator.take<float>(rows);
  scratch.row_sum = allocator.take<float>(rows * 16);
  scratch.row_rescale = allocator.take<float>(rows);
  scratch.merged = allocator.take<float>(shape.merges_splits ? rows * stride_v : 0);
  scratch.merged_lse = allocator.take<float>(shape.merges_splits ? rows : 0);
  scratch.visible = allocator.take<UnmaskedKeys>(static_cast<size_t>(shape.num_tokens));
  scratch.unmasked_words = allocator.take<uint64_t>(2 * static_cast<size_t>(shape.num_tokens));
}

}  // namespace

int q_tile_tokens(const AttentionPlanLimits& limits) {
  const int group = limits.num_q_heads / limits.num_kv_heads;
  return std::clamp(kTileRows / group, 1, std::max(1, limits.max_tokens));
}

TileShape TileShape::make(const AttentionPlanLimits& limits) {
  constexpr int kMaxMlaRopeDim = 64;
  return {.num_tokens = q_tile_tokens(limits),
          .group = limits.num_q_heads / limits.num_kv_heads,
          .head_dim_qk = std::max(256, limits.head_dim_v + kMaxMlaRopeDim),
          .head_dim_v = limits.head_dim_v,
          .merges_splits = limits.split_rule == SplitRule::kFixed};
}

TileScratch::TileScratch(const TileShape& shape, void* memory) {
  ScratchAllocator allocator{static_cast<char*>(memory)};
  allocate_scratch(shape, allocator, *this);
}

size_t TileScratch::num_bytes(const TileShape& shape) {
  ScratchAllocator allocator{nullptr};
  TileScratch counted(shape, nullptr);
  allocate_scratch(shape, allocator, counted);
  return allocator.used;
}

}  // namespace attend::kernels::cpu
