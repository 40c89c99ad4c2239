// Products of an item with vector arithmetic. Few rows read K and V in the layout of the pages (skinny.h);
// for many, each tile is packed first (tile_pack.h, tile_multiply.h).
#pragma once

#include "attend/kernels/attention/cpu/item_context.h"
#include "attend/kernels/attention/cpu/products/skinny.h"
#include "attend/kernels/attention/cpu/products/tile_pack.h"
#include "attend/kernels/common/cpu/tile_multiply.h"

namespace attend::kernels::cpu {
namespace {

// M: policy of multiplying and accumulating (mac.h); T: element type of K and V.
template <class M, class T>
class VectorProducts {
 public:
  using Simd = typename M::Simd;
  static constexpr int kPVecs = M::kElements;

  explicit VectorProducts(const ItemContext& context)
      : problem_(context.problem),
        context_(context),
        scratch_(context.scratch),
        is_skinny_(context.num_rows <= kMaxSkinnyRows),
        // The two methods of computing Q K^T sum in different orders; under fixed splits a row's bits must
        // not depend on the number of rows.
        packs_keys_(!is_skinny_ || problem_.split_tokens > 0) {}

  void pack_queries() {
    const auto pack = [&]<class Q>(TypeTag<Q>) {
      cpu::pack_queries<M, Q>(problem_, context_.first_token, context_.num_tokens, context_.kv_head, q(),
                              context_.stride_qk);
    };
    // Blocks extend past the last element: the query is zero there.
    if (!packs_keys_)
      for (int i = 0; i < context_.num_rows * context_.stride_qk; ++i) q()[i] = 0;
    if constexpr (M::kElements == 2) {
      pack(TypeTag<BF16>{});
    } else {
      if (problem_.q_dtype == DType::kF32) pack(TypeTag<float>{});
      if (problem_.q_dtype == DType::kF16) pack(TypeTag<F16>{});
      if (problem_.q_dtype == DType::kBF16) pack(TypeTag<BF16>{});
    }
    if (!packs_keys_) order_queries<M, T>(q(), context_.stride_qk, context_.num_rows, problem_.k.dim);
  }

  void multiply_keys(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    if (packs_keys_) return multiply_packed_keys(tile, row_begin, row_end);
    prefetch_run_starts(problem_, next);
    for_skinny_rows(row_end - row_begin, [&]<int kRows>(int i, Rows<kRows>) {
      const int row = row_begin + i;
      multiply_queries<M, T, kRows>(q() + row * context_.stride_qk, context_.stride_qk, tile, next,
                                    problem_.k.dim, scratch_.scores + row * kTileKeys);
    });
  }

  void store_p(int row, int key, const typename Simd::F32 (&p)[kPVecs]) {
    M::store_p(p_row(row) + key / M::kElements, p);
  }

  void add_values(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    if (!is_skinny_) return add_packed_values(tile, row_begin, row_end);
    for_skinny_rows(row_end - row_begin, [&]<int kRows>(int i, Rows<kRows>) {
      const int row = row_begin + i;
      cpu::add_values<M, T, kRows>(p_row(row), tile, next, problem_.v.dim,
                                   scratch_.acc + row * context_.stride_v, context_.stride_v,
                                   scratch_.row_rescale + row);
    });
  }

  void restore_columns(float*) const {}

 private:
  using Step = typename M::Step;

  Step* q() const { return static_cast<Step*>(scratch_.q); }
  Step* k() const { return static_cast<Step*>(scratch_.k); }
  Step* v() const { return static_cast<Step*>(scratch_.v); }
  // Overwrites the scores.
  Step* p_row(int row) const { return reinterpret_cast<Step*>(scratch_.scores + row * kTileKeys); }

  void multiply_packed_keys(const TileRows& tile, int row_begin, int row_end) {
    pack_keys<M, T>(tile.k, problem_.k.dim, k());
    multiply<M>({.a = q() + row_begin * context_.stride_qk,
                 .a_stride = context_.stride_qk,
                 .b = k(),
                 .b_stride = kTileKeys,
                 .c = scratch_.scores + row_begin * kTileKeys,
                 .c_stride = kTileKeys,
                 .c_scale = nullptr,
                 .num_steps = problem_.k.dim / M::kElements},
                row_end - row_begin, kTileKeys / Simd::kLanes);
  }

  void add_packed_values(const TileRows& tile, int row_begin, int row_end) {
    pack_values<M, T>(tile.v, problem_.v.dim, v(), context_.stride_v);
    multiply<M>({.a = p_row(row_begin),
                 .a_stride = kTileKeys,
                 .b = v(),
                 .b_stride = context_.stride_v,
                 .c = scratch_.acc + row_begin * context_.stride_v,
                 .c_stride = context_.stride_v,
                 .c_scale = scratch_.row_rescale + row_begin,
                 .num_steps = kTileKeys / M::kElements},
                row_end - row_begin, (problem_.v.dim + Simd::kLanes - 1) / Simd::kLanes);
  }

  // Up to this number of rows, packing a tile costs more than converting it again for every four rows.
  static constexpr int kMaxSkinnyRows = 8;

  const AttentionProblem& problem_;
  const ItemContext& context_;
  TileScratch& scratch_;
  const bool is_skinny_, packs_keys_;
};

}  // namespace
}  // namespace attend::kernels::cpu
