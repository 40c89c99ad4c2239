// One work item: a tile of query rows against a range of keys.
//
// For each tile of keys: S = Q K^T, online softmax, O = rescale * O + P V.
#pragma once

#include <math.h>

#include "attend/kernels/cpu/attention_kernel.h"
#include "attend/kernels/cpu/few_rows.h"
#include "attend/kernels/cpu/result_rows.h"
#include "attend/kernels/cpu/tile_multiply.h"
#include "attend/kernels/cpu/tile_pack.h"
#include "attend/kernels/cpu/tile_softmax.h"

namespace attend::kernels::cpu {
namespace {

// M: how products are summed; T: element type of K and V.
template <class M, class T>
class ItemAttention {
 public:
  using S = typename M::Simd;
  using Step = typename M::Step;

  ItemAttention(const AttentionProblem& problem, const WorkItem& item, int kv_head, TileScratch& scratch)
      : problem_(problem),
        item_(item),
        kv_head_(kv_head),
        scratch_(scratch),
        group_(problem.group()),
        num_tokens_(item.q_end - item.q_begin),
        num_rows_(num_tokens_ * group_),
        stride_qk_(row_stride(problem.head_dim_qk())),
        stride_v_(row_stride(problem.v.dim)),
        has_few_rows_(num_rows_ <= kFewRows),
        // The two ways to multiply Q K^T sum in different orders; under fixed splits a row's bits must not
        // depend on how many rows there are.
        packs_keys_(!has_few_rows_ || problem.split_tokens > 0),
        first_token_(problem.batch.cu_seqlen_q[static_cast<size_t>(item.request)] + item.q_begin) {}

  void run() {
    for (int j = 0; j < num_tokens_; ++j)
      scratch_.visible[j] =
          visible_keys(problem_.batch, problem_.visibility, item_.request, item_.q_begin + j);
    pack_query();
    if (problem_.split_tokens == 0) {
      attend_range(item_.kv_begin, item_.kv_end);
      write_rows(scratch_.acc);
    } else {
      attend_splits();
      write_rows(scratch_.merged);
    }
  }

 private:
  Step* q() const { return static_cast<Step*>(scratch_.q); }
  Step* k() const { return static_cast<Step*>(scratch_.k); }
  Step* v() const { return static_cast<Step*>(scratch_.v); }
  // Scores have become weights, in place.
  const Step* weights(int row) const {
    return reinterpret_cast<const Step*>(scratch_.scores + row * kTileKeys);
  }

  void pack_query() {
    const auto pack = [&]<class Q>(TypeTag<Q>) {
      pack_queries<M, Q>(problem_, first_token_, num_tokens_, kv_head_, q(), stride_qk_);
    };
    // Blocks reach behind the last element: there the query is zero.
    if (!packs_keys_) clear(static_cast<float*>(scratch_.q), num_rows_ * stride_qk_, 0.0f);
    if constexpr (M::kElements == 2) {
      pack(TypeTag<BF16>{});
    } else {
      if (problem_.q_dtype == DType::kF32) pack(TypeTag<float>{});
      if (problem_.q_dtype == DType::kF16) pack(TypeTag<F16>{});
      if (problem_.q_dtype == DType::kBF16) pack(TypeTag<BF16>{});
    }
    if (!packs_keys_) order_queries<M, T>(q(), stride_qk_, num_rows_, problem_.k.dim);
  }

  // Each fixed split by itself, merged left to right: whichever thread does it, and whatever the range of
  // the item, a row's result is the same.
  void attend_splits() {
    clear(scratch_.merged, num_rows_ * stride_v_, 0.0f);
    clear(scratch_.merged_lse, num_rows_, kNone);
    for (int32_t begin = item_.kv_begin; begin < item_.kv_end;) {
      int32_t end = (begin / problem_.split_tokens + 1) * problem_.split_tokens;
      if (end > item_.kv_end) end = item_.kv_end;
      attend_range(begin, end);
      for (int row = 0; row < num_rows_; ++row)
        merge_row<S>(scratch_.merged + row * stride_v_, scratch_.merged_lse[row],
                     scratch_.acc + row * stride_v_, scratch_.row_max[row], stride_v_);
      begin = end;
    }
    for (int row = 0; row < num_rows_; ++row) scratch_.row_max[row] = scratch_.merged_lse[row];
  }

  // A tile of keys, and which rows of the item it concerns.
  struct Tile {
    TileRows rows;
    uint64_t* visible_words;  // [num_tokens]
    int token_begin, token_end;
  };

  // The attention of all rows to the keys [begin, end): normalised results in acc, their LSE in row_max.
  void attend_range(int32_t begin, int32_t end) {
    clear(scratch_.acc, num_rows_ * stride_v_, 0.0f);
    clear(scratch_.row_max, num_rows_, kNone);
    clear(scratch_.row_sum, num_rows_ * 16, 0.0f);
    Tile tiles[2];
    tiles[0].visible_words = scratch_.visible_words;
    tiles[1].visible_words = scratch_.visible_words + num_tokens_;
    const int32_t first_tile = begin / kTileKeys * kTileKeys;
    find_tile(first_tile, range_bits(begin, end, first_tile), tiles[0]);
    for (int32_t first = first_tile, i = 0; first < end; first += kTileKeys, i ^= 1) {
      find_tile(first + kTileKeys, range_bits(begin, end, first + kTileKeys), tiles[i ^ 1]);
      if (tiles[i].rows.present != 0) attend_tile(tiles[i], tiles[i ^ 1].rows);
    }
    for (int row = 0; row < num_rows_; ++row) finish_row(row);
  }

  // The keys first .. first + 63 of which `range` has the bits.
  void find_tile(int32_t first, uint64_t range, Tile& tile) {
    uint64_t present = 0;
    tile.token_begin = num_tokens_;
    tile.token_end = 0;
    for (int j = 0; j < num_tokens_; ++j) {
      const uint64_t word = range == 0 ? 0 : visible_word(scratch_.visible[j], first) & range;
      tile.visible_words[j] = word;
      present |= word;
      if (word == 0) continue;
      if (tile.token_begin == num_tokens_) tile.token_begin = j;
      tile.token_end = j + 1;
    }
    locate_rows(problem_, item_.request, kv_head_, first, present, tile.rows);
  }

  void attend_tile(const Tile& tile, const TileRows& next) {
    const int row_begin = tile.token_begin * group_, row_end = tile.token_end * group_;
    if (packs_keys_)
      multiply_packed_keys(tile.rows, row_begin, row_end);
    else
      multiply_keys(tile.rows, next, row_begin, row_end);
    score_rows<S>(problem_, tile.visible_words, row_begin, row_end, scratch_);
    weigh_rows<M>(row_begin, row_end, scratch_);
    if (has_few_rows_)
      add_tile_values(tile.rows, next, row_begin, row_end);
    else
      add_packed_values(tile.rows, row_begin, row_end);
  }

  void multiply_packed_keys(const TileRows& tile, int row_begin, int row_end) {
    pack_keys<M, T>(tile.k, problem_.k.dim, k());
    multiply<M>({.a = q() + row_begin * stride_qk_,
                 .a_stride = stride_qk_,
                 .b = k(),
                 .b_stride = kTileKeys,
                 .c = scratch_.scores + row_begin * kTileKeys,
                 .c_stride = kTileKeys,
                 .c_scale = nullptr,
                 .num_steps = problem_.k.dim / M::kElements},
                row_end - row_begin, kTileKeys / S::kLanes);
  }

  void multiply_keys(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    for_few_rows(row_end - row_begin, [&]<int kRows>(int i, Rows<kRows>) {
      const int row = row_begin + i;
      multiply_queries<M, T, kRows>(q() + row * stride_qk_, stride_qk_, tile, next, problem_.k.dim,
                                    scratch_.scores + row * kTileKeys);
    });
  }

  void add_packed_values(const TileRows& tile, int row_begin, int row_end) {
    pack_values<M, T>(tile.v, problem_.v.dim, v(), stride_v_);
    multiply<M>({.a = weights(row_begin),
                 .a_stride = kTileKeys,
                 .b = v(),
                 .b_stride = stride_v_,
                 .c = scratch_.acc + row_begin * stride_v_,
                 .c_stride = stride_v_,
                 .c_scale = scratch_.row_rescale + row_begin,
                 .num_steps = kTileKeys / M::kElements},
                row_end - row_begin, (problem_.v.dim + S::kLanes - 1) / S::kLanes);
  }

  void add_tile_values(const TileRows& tile, const TileRows& next, int row_begin, int row_end) {
    for_few_rows(row_end - row_begin, [&]<int kRows>(int i, Rows<kRows>) {
      const int row = row_begin + i;
      add_values<M, T, kRows>(weights(row), tile, next, problem_.v.dim, scratch_.acc + row * stride_v_,
                              stride_v_, scratch_.row_rescale + row);
    });
  }

  void finish_row(int row) {
    const float sum = S::reduce_add(S::load(scratch_.row_sum + row * 16));
    if (sum == 0) return;  // the row saw no key: acc is 0, row_max is -inf
    scale_row<S>(scratch_.acc + row * stride_v_, problem_.v_scale / sum, stride_v_);
    scratch_.row_max[row] += ::logf(sum);
  }

  void write_rows(const float* results) {
    for (int row = 0; row < num_rows_; ++row) {
      const int token = row / group_, head = kv_head_ * group_ + row % group_;
      const float* const result = results + row * stride_v_;
      if (item_.partial >= 0)
        write_partial<S>(problem_, item_.partial + token, head, result, scratch_.row_max[row]);
      else
        write_final<S>(problem_, first_token_ + token, head, result, scratch_.row_max[row]);
    }
  }

  static void clear(float* values, int64_t count, float value) {
    for (int64_t i = 0; i < count; ++i) values[i] = value;
  }

  static constexpr float kNone = kEmptyLse;
  // Up to here packing a tile costs more than converting it again for every four rows.
  static constexpr int kFewRows = 8;

  const AttentionProblem& problem_;
  const WorkItem& item_;
  const int kv_head_;
  TileScratch& scratch_;
  const int group_, num_tokens_, num_rows_;
  const int stride_qk_, stride_v_;  // steps; as TileShape
  const bool has_few_rows_, packs_keys_;
  const int64_t first_token_;
};

template <class M, class T>
void attend_item(const AttentionProblem& problem, const WorkItem& item, int kv_head, TileScratch& scratch) {
  ItemAttention<M, T>(problem, item, kv_head, scratch).run();
}

}  // namespace
}  // namespace attend::kernels::cpu
