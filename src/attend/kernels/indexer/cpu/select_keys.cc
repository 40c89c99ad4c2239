#include "attend/kernels/indexer/cpu/select_keys.h"

#include <algorithm>
#include <array>
#include <bit>

#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/indexer/cpu/index_scores_kernels.h"
#include "attend/kernels/metadata/find_page.h"

namespace attend::kernels::cpu {
namespace {

// Consecutive queries of one request, and the row of the first one in the scores.
struct QueryRun {
  int request;
  int32_t begin, end;     // tokens of the batch
  int32_t first_visible;  // keys that the first of them sees; each further query sees one more
  int64_t score_row;

  int32_t visible(int32_t token) const { return first_visible + token - begin; }
};

// Calls fn(run) for the queries `begin` to `end` of the batch, cut by request.
template <class Fn>
void for_each_run(const QueryBatch& batch, int32_t begin, int32_t end, const Fn& fn) {
  for (int request = 0; request < batch.num_reqs(); ++request) {
    const auto r = static_cast<size_t>(request);
    const int32_t first = std::max(begin, batch.cu_seqlen_q[r]);
    const int32_t last = std::min(end, batch.cu_seqlen_q[r + 1]);
    if (first >= last) continue;
    fn(QueryRun{.request = request,
                .begin = first,
                .end = last,
                .first_visible = batch.seqlen_kv[r] - (batch.cu_seqlen_q[r + 1] - 1 - first),
                .score_row = first - begin});
  }
}

const float* row_of(const TensorView& view, int64_t row) {
  return view.as<const float>() + row * view.strides[0];
}

// Scores one tile of keys for the queries of a run that see it and more than `width` keys.
void score_tile(const SelectKeysArgs& args, const IndexScoreKernels& kernels, const QueryRun& run,
                int32_t first_key, int32_t width, const TensorView& scores) {
  const int64_t num_heads = args.q.shape[1], head_dim = args.q.shape[2];
  const int32_t last_key = run.visible(run.end - 1) - 1, page_size = args.index.page_size;
  std::array<const void*, kMaxTileKeys> rows;
  for (int i = 0; i < kernels.tile_keys; ++i) {
    // Scores of keys after the last one are not read.
    const int32_t key = std::min(first_key + i, last_key);
    const int64_t page = find_page(args.index, run.request, key);
    rows[static_cast<size_t>(i)] = static_cast<const std::byte*>(args.k.data) +
                                   (page * args.k.strides[0] + key % page_size * args.k.strides[1]) *
                                       static_cast<int64_t>(size_of(args.k.dtype));
  }
  alignas(64) std::array<float, kMaxIndexDim * kMaxTileKeys> keys;
  kernels.transpose(rows.data(), args.k.dtype, head_dim, keys.data());
  for (int32_t token = run.begin; token < run.end; ++token) {
    if (run.visible(token) <= std::max(first_key, width)) continue;
    float* const out = scores.as<float>() + (run.score_row + token - run.begin) * scores.strides[0];
    kernels.score(row_of(args.q, token), args.q.strides[1], row_of(args.weights, token), num_heads, head_dim,
                  keys.data(), out + first_key);
  }
}

// Returns a number with the order of the scores. The sum converts -0 to 0.
uint32_t to_ordered(float score) {
  if (score != score) return 0;
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The k-th largest of some numbers, and how many of the numbers equal to it are among the k largest.
struct Threshold {
  uint32_t value = 0;
  int32_t num_equal = 0;
};

// Radix selection: finds a byte of the k-th largest number per pass, the highest byte first.
Threshold find_threshold(const float* scores, int32_t count, int32_t k) {
  Threshold found{.value = 0, .num_equal = k};
  for (int shift = 24; shift >= 0; shift -= 8) {
    const uint32_t known = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
    std::array<int32_t, 256> histogram{};
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t number = to_ordered(scores[i]);
      if ((number & known) == found.value) ++histogram[number >> shift & 255];
    }
    uint32_t digit = 255;
    for (; histogram[digit] < found.num_equal; --digit) found.num_equal -= histogram[digit];
    found.value |= digit << shift;
  }
  return found;
}

// Writes the slots of the selected keys of one query in the order of their positions.
void write_slots(const KvIndex& index, const QueryRun& run, int32_t token, const float* scores,
                 const SelectedKeys& to) {
  const int32_t visible = run.visible(token), page_size = index.page_size;
  int32_t* out = to.slots.data() + static_cast<int64_t>(token) * to.width;
  const auto select = [&](int32_t key) {
    *out++ = find_page(index, run.request, key) * page_size + key % page_size;
  };
  if (visible <= to.width) {
    for (int32_t key = 0; key < visible; ++key) select(key);
    return;
  }
  Threshold threshold = find_threshold(scores, visible, to.width);
  for (int32_t key = 0; key < visible; ++key) {
    const uint32_t number = to_ordered(scores[key]);
    if (number < threshold.value) continue;
    if (number == threshold.value && threshold.num_equal-- <= 0) continue;
    select(key);
  }
}

}  // namespace

IndexScoreKernels index_score_kernels(Isa isa) {
  require_isa(isa);
  if constexpr (kX86Kernels) {
    if (isa >= Isa::kAvx512) return index_score_kernels_avx512();
    if (isa == Isa::kAvx2) return index_score_kernels_avx2();
  }
  return index_score_kernels_portable();
}

void select_keys(const SelectKeysArgs& args, const TensorView& scores, const SelectedKeys& to, Isa isa) {
  const IndexScoreKernels kernels = index_score_kernels(isa);
  const int32_t num_tokens = args.batch.cu_seqlen_q.back();
  const auto rows = static_cast<int32_t>(scores.shape[0]);
  for (int32_t begin = 0; begin < num_tokens; begin += rows) {
    const int32_t end = std::min(num_tokens, begin + rows);
    for_each_run(args.batch, begin, end, [&](const QueryRun& run) {
      const int32_t num_keys = run.visible(run.end - 1);
      if (num_keys > to.width)
        parallel_for(ceil_div(num_keys, kernels.tile_keys), [&](int64_t tile, int) {
          score_tile(args, kernels, run, static_cast<int32_t>(tile) * kernels.tile_keys, to.width, scores);
        });
      parallel_for_rows(run.end - run.begin, num_keys, [&](int64_t i) {
        write_slots(args.index, run, run.begin + static_cast<int32_t>(i), row_of(scores, run.score_row + i),
                    to);
      });
    });
  }
}

}  // namespace attend::kernels::cpu
