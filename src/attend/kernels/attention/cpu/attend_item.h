// One work item: a tile of query rows against a range of keys.
//
// For each tile of keys: S = Q K^T, online softmax, O = rescale * O + P V.
#pragma once

#include <math.h>

#include "attend/kernels/attention/cpu/attention_kernel.h"
#include "attend/kernels/attention/cpu/item_context.h"
#include "attend/kernels/attention/cpu/products/vector_products.h"
#include "attend/kernels/attention/cpu/result_rows.h"
#include "attend/kernels/attention/cpu/tile_softmax.h"

namespace attend::kernels::cpu {

namespace {

// Products: class that multiplies rows with tiles of keys (item_context.h).
template <class Products>
class ItemAttention {
 public:
  using S = typename Products::Simd;

  ItemAttention(const AttentionProblem& problem, const WorkItem& item, int kv_head, TileScratch& scratch)
      : context_(problem, item, kv_head, scratch),
        products_(context_),
        problem_(problem),
        item_(item),
        scratch_(scratch),
        group_(context_.group),
        num_tokens_(context_.num_tokens),
        num_rows_(context_.num_rows),
        stride_v_(context_.stride_v) {}

  void run() {
    for (int j = 0; j < num_tokens_; ++j)
      scratch_.visible[j] =
          visible_keys(problem_.batch, problem_.attention_mask, item_.request, item_.q_begin + j);
    products_.pack_queries();
    if (problem_.split_tokens == 0) {
      attend_range(item_.kv_begin, item_.kv_end);
      write_rows(scratch_.acc);
    } else {
      attend_splits();
      write_rows(scratch_.merged);
    }
  }

 private:
  // Computes each fixed split separately and merges them from left to right: a row's result depends neither
  // on the thread nor on the range of the item.
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

  // A tile of keys, and the rows of the item that it concerns.
  struct Tile {
    TileRows rows;
    uint64_t* unmasked_words;  // [num_tokens]
    int token_begin, token_end;
  };

  // Attends all rows to the keys [begin, end): normalized results are in acc, their LSE in row_max.
  void attend_range(int32_t begin, int32_t end) {
    clear(scratch_.acc, num_rows_ * stride_v_, 0.0f);
    clear(scratch_.row_max, num_rows_, kNone);
    clear(scratch_.row_sum, num_rows_ * 16, 0.0f);
    Tile tiles[2];
    tiles[0].unmasked_words = scratch_.unmasked_words;
    tiles[1].unmasked_words = scratch_.unmasked_words + num_tokens_;
    const int32_t first_tile = begin / kTileKeys * kTileKeys;
    find_tile(first_tile, range_bits(begin, end, first_tile), tiles[0]);
    for (int32_t first = first_tile, i = 0; first < end; first += kTileKeys, i ^= 1) {
      find_tile(first + kTileKeys, range_bits(begin, end, first + kTileKeys), tiles[i ^ 1]);
      if (tiles[i].rows.present != 0) attend_tile(tiles[i], tiles[i ^ 1].rows);
    }
    for (int row = 0; row < num_rows_; ++row) finish_row(row);
  }

  // Finds the tile of keys first .. first + 63, of which `range` has the bits.
  void find_tile(int32_t first, uint64_t range, Tile& tile) {
    uint64_t present = 0;
    tile.token_begin = num_tokens_;
    tile.token_end = 0;
    for (int j = 0; j < num_tokens_; ++j) {
      const uint64_t word = range == 0 ? 0 : unmasked_word(scratch_.visible[j], first) & range;
      tile.unmasked_words[j] = word;
      present |= word;
      if (word == 0) continue;
      if (tile.token_begin == num_tokens_) tile.token_begin = j;
      tile.token_end = j + 1;
    }
    locate_rows(problem_, item_.request, context_.kv_head, first, present, tile.rows);
  }

  void attend_tile(const Tile& tile, const TileRows& next) {
    const int row_begin = tile.token_begin * group_, row_end = tile.token_end * group_;
    TileRows converted;
    if (problem_.scaled_rows) convert_rows(tile.rows, scratch_.rows, context_.stride_qk, converted);
    const TileRows& rows = problem_.scaled_rows ? converted : tile.rows;
    products_.multiply_keys(rows, next, row_begin, row_end);
    score_rows<S>(problem_, tile.unmasked_words, row_begin, row_end, scratch_);
    exponentiate_rows(products_, row_begin, row_end, scratch_);
    products_.add_values(rows, next, row_begin, row_end);
  }

  void finish_row(int row) {
    const float sum = S::reduce_add(S::load(scratch_.row_sum + row * 16));
    if (sum == 0) return;  // the row has no keys: acc is 0, row_max is -inf
    products_.restore_columns(scratch_.acc + row * stride_v_);
    scale_row<S>(scratch_.acc + row * stride_v_, problem_.v_scale / sum, stride_v_);
    scratch_.row_max[row] += ::logf(sum);
  }

  void write_rows(const float* results) {
    for (int row = 0; row < num_rows_; ++row) {
      const int token = row / group_, head = context_.kv_head * group_ + row % group_;
      const float* const result = results + row * stride_v_;
      if (item_.partial >= 0)
        write_partial<S>(problem_, item_.partial + token, head, result, scratch_.row_max[row]);
      else
        write_final<S>(problem_, context_.first_token + token, head, result, scratch_.row_max[row]);
    }
  }

  static void clear(float* values, int64_t count, float value) {
    for (int64_t i = 0; i < count; ++i) values[i] = value;
  }

  static constexpr float kNone = kEmptyLse;

  const ItemContext context_;
  Products products_;
  const AttentionProblem& problem_;
  const WorkItem& item_;
  TileScratch& scratch_;
  const int group_, num_tokens_, num_rows_;
  const int stride_v_;  // see TileShape
};

template <class Products>
void attend_item(const AttentionProblem& problem, const WorkItem& item, int kv_head, TileScratch& scratch) {
  ItemAttention<Products>(problem, item, kv_head, scratch).run();
}

}  // namespace

// Instances of the attention kernel for an instruction set.

namespace {

template <class M>
AttentionKernel instance(DType kv) {
  AttentionKernel kernel;
  kernel.merge_token = &merge_token<typename M::Simd>;
  visit_float_dtype(kv,
                    [&]<class T>(TypeTag<T>) { kernel.attend_item = &attend_item<VectorProducts<M, T>>; });
  return kernel;
}

}  // namespace

}  // namespace attend::kernels::cpu
