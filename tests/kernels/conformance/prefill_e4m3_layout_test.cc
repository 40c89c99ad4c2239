// Layouts (sm90/prefill_e4m3_layout.h) and arithmetic of e4m3 prefill, tested without a GPU: runs the
// kernel's work tiles with emulated tensor cores.
#include "attend/kernels/attention/cuda/sm90/prefill_e4m3/prefill_e4m3_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "attend/kernels/attention/reference_mask.h"
#include "attend/kernels/common/element.h"
#include "attend/kernels/metadata/find_page.h"
#include "tests/kernels/conformance/emulated_tensor_cores.h"
#include "tests/kernels/conformance/run.h"

namespace attend::conformance {
namespace {

namespace e4m3 = kernels::cuda::sm90::e4m3;
using kernels::AttentionArgs;
using kernels::find_page;
using kernels::reference::offset;
using kernels::reference::Query;
using kernels::reference::store;

constexpr int kKeys = 128, kRows = 64, kPanelBytes = kKeys * e4m3::kRowBytes;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Work of the four warps of PrefillTransposer: `from` has keys as rows, `to` has keys as columns.
template <int kHeadDimV>
void transpose(emulated::SharedMemory& memory, int from, int to, int begin, int end) {
  for (int warp = 0; warp < 4; ++warp) {
    const int first_key = warp * e4m3::kKeysAtOnce;
    for (int column_group = 0; column_group < kHeadDimV / e4m3::kColumnsAtOnce; ++column_group) {
      std::array<int, 32> read{}, written{};
      for (int lane = 0; lane < 32; ++lane) {
        const auto l = static_cast<size_t>(lane);
        read[l] = from + e4m3::piece_offset(first_key + lane, column_group);
        written[l] = to + column_group * e4m3::kColumnsAtOnce * e4m3::kRowBytes +
                     e4m3::piece_offset(e4m3::transposed_row(lane),
                                        first_key / e4m3::kPieceBytes + e4m3::transposed_piece(lane));
      }
      const emulated::WarpRegisters columns = emulated::ldmatrix_x4_trans(memory, read);
      emulated::WarpRegisters rows{};
      for (int lane = 0; lane < 32; ++lane)
        for (int result = 0; result < 4; ++result) {
          const auto& of_lane = columns[static_cast<size_t>(lane)];
          const auto reg = static_cast<size_t>(e4m3::first_register(result));
          rows[static_cast<size_t>(lane)][static_cast<size_t>(result)] =
              emulated::prmt(of_lane[reg], of_lane[reg + 1], e4m3::selector(result)) &
              e4m3::key_byte_mask(lane, result / 2, begin - first_key, end - first_key);
        }
      emulated::stmatrix_x4(memory, written, rows);
    }
  }
}

// Returns true if the eight rows of one phase of ldmatrix or stmatrix are in different banks (16-byte units
// modulo 128).
bool is_in_eight_banks(const std::array<int, 8>& addresses) {
  unsigned banks = 0;
  for (const int address : addresses) banks |= 1u << (address / 16 % 8);
  return banks == 0xff;
}

TEST(PrefillE4m3Layout, ReadsAndWritesWithoutBankConflicts) {
  for (int phase = 0; phase < 4; ++phase)
    for (int piece = 0; piece < 8; ++piece) {
      std::array<int, 8> read{}, written{};
      for (int i = 0; i < 8; ++i) {
        const int lane = 8 * phase + i;
        read[static_cast<size_t>(i)] = e4m3::piece_offset(lane, piece);
        written[static_cast<size_t>(i)] =
            e4m3::piece_offset(e4m3::transposed_row(lane), piece / 2 * 2 + e4m3::transposed_piece(lane));
      }
      EXPECT_TRUE(is_in_eight_banks(read)) << phase << " " << piece;
      EXPECT_TRUE(is_in_eight_banks(written)) << phase << " " << piece;
    }
}

// Every byte of V is copied to the position in V^T that the layout defines; bytes of excluded keys are zero.
TEST(PrefillE4m3Layout, TransposesEveryByteToItsPosition) {
  constexpr int kColumns = 128;
  emulated::SharedMemory memory(2 * kPanelBytes, 0xff);
  const auto byte_at = [](int key, int column) { return static_cast<uint8_t>(key * 37 + column * 11 + 1); };
  for (int key = 0; key < kKeys; ++key)
    for (int column = 0; column < kColumns; ++column)
      memory[static_cast<size_t>(emulated::swizzled(key * e4m3::kRowBytes + column))] = byte_at(key, column);
  constexpr int kBegin = 5, kEnd = 101;
  transpose<kColumns>(memory, 0, kPanelBytes, kBegin, kEnd);
  for (int row = 0; row < kColumns; ++row)
    for (int place = 0; place < kKeys; ++place) {
      const int key = place / 16 * 16 + e4m3::key_at_position(place % 16);
      const int column = row / 16 * 16 + e4m3::column_for_row(row % 16);
      const auto at = static_cast<size_t>(kPanelBytes + emulated::swizzled(row * e4m3::kRowBytes + place));
      ASSERT_EQ(memory[at], kBegin <= key && key < kEnd ? byte_at(key, column) : 0) << row << " " << place;
    }
}

// The position of a P element matches the position of its key in V^T.
TEST(PrefillE4m3Layout, PlacesProbabilitiesAtTheKeysOfValues) {
  for (int lane = 0; lane < 4; ++lane)
    for (int step = 0; step < kKeys / 32; ++step)
      for (int reg = 0; reg < 4; ++reg)
        for (int byte = 0; byte < 4; ++byte) {
          const int score = e4m3::score_for_byte(step, reg, byte);
          const int half = score / 2 % 2, key = score / 4 * 8 + 2 * lane + score % 2;
          const int place = 32 * step + 16 * (reg / 2) + 4 * lane + byte;
          EXPECT_EQ(half, reg % 2);
          EXPECT_EQ(key, place / 16 * 16 + e4m3::key_at_position(place % 16));
        }
}

// Work tile of 64 rows of one consumer warpgroup, with the steps of the kernel.
template <int kHeadDimQk, int kHeadDimV>
class EmulatedTile {
  static constexpr int kQkPanels = (kHeadDimQk + 127) / 128;
  static constexpr int kQueries = 0, kKeysAt = kQkPanels * kRows * e4m3::kRowBytes,
                       kValues = kKeysAt + kQkPanels * kPanelBytes, kTransposed = kValues + kPanelBytes,
                       kBytes = kTransposed + kHeadDimV * e4m3::kRowBytes;
  static constexpr float kOffset = 8.0f, kSlack = 0.75f;

 public:
  // `row_of(row)` returns the bytes of a query row of the tile, or null.
  template <class RowOf>
  explicit EmulatedTile(const RowOf& row_of, int head_dim) {
    copy_rows(kQueries, kRows, head_dim, row_of);
    for (auto& of_thread : out_) of_thread.fill(0.0f);
    row_max_.fill(-kInfinity);
    row_sum_.fill(0.0f);
  }

  // Processes a KV tile. `score(value)` applies the cap, if any; `sees(row, key)` returns true if a row
  // attends to a key of the tile. `begin` and `end` bound the keys of the tile that are included.
  template <class KeyOf, class ValueOf, class Score, class Sees>
  void attend(const KeyOf& key_of, int head_dim_qk, const ValueOf& value_of, int head_dim_v, int begin,
              int end, float scale_log2, const Score& score, const Sees& sees) {
    copy_rows(kKeysAt, kKeys, head_dim_qk, key_of);
    copy_rows(kValues, kKeys, head_dim_v, value_of);
    transpose<kHeadDimV>(memory_, kValues, kTransposed, begin, end);
    emulated::Accumulators<kKeys> scores;
    for (int step = 0; step < kHeadDimQk / 32; ++step) {
      const int panel = step / 4, in_panel = step % 4 * 32;
      emulated::wgmma<kKeys>(scores, memory_, kQueries + panel * kRows * e4m3::kRowBytes + in_panel,
                             kKeysAt + panel * kPanelBytes + in_panel, step > 0);
    }
    std::array<float, kRows> new_max = row_max_, rescale{}, sum{};
    for_each_score([&](int row, int key, size_t t, size_t i) {
      float& element = scores[t][i];
      element = sees(row, key) ? score(element) : -kInfinity;
      new_max[static_cast<size_t>(row)] = std::max(new_max[static_cast<size_t>(row)], element);
    });
    for (size_t row = 0; row < kRows; ++row) {
      if (!((new_max[row] - row_max_[row]) * scale_log2 > kSlack)) new_max[row] = row_max_[row];
      rescale[row] =
          new_max[row] == -kInfinity ? 0.0f : std::exp2((row_max_[row] - new_max[row]) * scale_log2);
    }
    row_max_ = new_max;
    for_each_score([&](int row, int, size_t t, size_t i) {
      const auto r = static_cast<size_t>(row);
      float& element = scores[t][i];
      element = element == -kInfinity
                    ? 0.0f
                    : std::exp2(element * scale_log2 - (row_max_[r] * scale_log2 - kOffset));
      sum[r] += element;
    });
    for (size_t row = 0; row < kRows; ++row) row_sum_[row] = row_sum_[row] * rescale[row] + sum[row];
    for (size_t t = 0; t < 128; ++t)
      for (size_t i = 0; i < kHeadDimV / 2; ++i)
        out_[t][i] *= rescale[t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2)];
    for (int step = 0; step < kKeys / 32; ++step) {
      emulated::RegistersA p{};
      for (size_t t = 0; t < 128; ++t)
        for (int reg = 0; reg < 4; ++reg)
          for (int byte = 0; byte < 4; ++byte) {
            const float element = scores[t][static_cast<size_t>(e4m3::score_for_byte(step, reg, byte))];
            p[t][static_cast<size_t>(reg)] |= uint32_t{F8E4M3(element).bits} << (8 * byte);
          }
      emulated::wgmma_rs<kHeadDimV>(out_, p, memory_, kTransposed + 32 * step);
    }
  }

  // Column `column` of a row's output before division by the row sum.
  float out(int row, int column) const {
    const int column_group = column / 16, lane = column % 16 / 4, half = row % 16 / 8;
    EXPECT_EQ(e4m3::lane_first_column(lane), column % 16 / 4 * 4);
    const auto t = static_cast<size_t>(row / 16 * 32 + row % 8 * 4 + lane);
    return out_[t][static_cast<size_t>(e4m3::element_for_column(column_group, half, column % 4))];
  }
  float row_max(int row) const { return row_max_[static_cast<size_t>(row)]; }
  // The row sum, like the output, is scaled by 2^kOffset.
  float row_sum(int row) const { return row_sum_[static_cast<size_t>(row)]; }

 private:
  template <class Fn>
  static void for_each_score(const Fn& fn) {
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < kKeys / 2; ++i)
        fn(t / 32 * 16 + t % 32 / 4 + 8 * (i / 2 % 2), i / 4 * 8 + 2 * (t % 4) + i % 2,
           static_cast<size_t>(t), static_cast<size_t>(i));
  }
  // Copies like TMA: columns after head_dim are filled with zeros. Rows without data keep their contents.
  template <class RowOf>
  void copy_rows(int to, int num_rows, int head_dim, const RowOf& row_of) {
    for (int row = 0; row < num_rows; ++row) {
      const uint8_t* const from = row_of(row);
      if (from == nullptr) continue;
      for (int d = 0; d < (head_dim + 127) / 128 * 128; ++d)
        memory_[static_cast<size_t>(emulated::swizzled(to + d / 128 * num_rows * e4m3::kRowBytes +
                                                       row * e4m3::kRowBytes + d % 128))] =
            d < head_dim ? from[d] : 0;
    }
  }

  // Initialized with NaN.
  emulated::SharedMemory memory_ = emulated::SharedMemory(kBytes, 0x7f);
  emulated::Accumulators<kHeadDimV> out_;
  std::array<float, kRows> row_max_, row_sum_;
};

float get_scale(const kernels::HeadScales& scales, int request, int64_t head) {
  return scales.data == nullptr ? 1.0f
                                : scales.data[request * scales.request_stride + head * scales.head_stride];
}

// The kernel over a whole problem: tiles of 64 rows per request and KV head.
template <int kHeadDimQk, int kHeadDimV>
class EmulatedPrefill {
 public:
  explicit EmulatedPrefill(const AttentionArgs& args) : args_(args) {}

  void run() {
    for (int64_t token = 0; token < args_.out.shape[0]; ++token)
      for (int64_t head = 0; head < args_.out.shape[1]; ++head) write_empty(token, head);
    for (int request = 0; request < args_.batch.num_reqs(); ++request)
      for (int64_t head = 0; head < args_.kv.k.shape[2]; ++head)
        for (int first = 0; first < num_rows(request); first += kRows) attend(request, head, first);
  }

 private:
  int64_t group() const { return args_.q.shape[1] / args_.kv.k.shape[2]; }
  int num_rows(int request) const {
    const auto r = static_cast<size_t>(request);
    return static_cast<int>((args_.batch.cu_seqlen_q[r + 1] - args_.batch.cu_seqlen_q[r]) * group());
  }
  static const uint8_t* bytes(const TensorView& view, int64_t at) {
    return static_cast<const uint8_t*>(view.data) + at;
  }
  const uint8_t* row_of(const TensorView& pool, int request, int64_t head, int key) const {
    const int32_t page = find_page(args_.kv.index, request, key);
    return bytes(pool, offset(pool, page, key % args_.kv.index.page_size, head));
  }

  void attend(int request, int64_t head, int first) {
    std::vector<Query> queries;
    for (int row = first; row < std::min(first + kRows, num_rows(request)); ++row)
      queries.push_back(kernels::reference::make_query(args_.batch, args_.attention_mask, request,
                                                       static_cast<int>(row / group())));
    const int rows = static_cast<int>(queries.size());
    const auto q_head = [&](int row) { return head * group() + (first + row) % group(); };
    EmulatedTile<kHeadDimQk, kHeadDimV> tile(
        [&](int row) {
          return row < rows
                     ? bytes(args_.q, offset(args_.q, queries[static_cast<size_t>(row)].token, q_head(row)))
                     : nullptr;
        },
        static_cast<int>(args_.q.shape[2]));
    const auto sees = [&](int row, int key) {
      return row < rows && kernels::reference::sees(args_.batch, args_.attention_mask,
                                                    queries[static_cast<size_t>(row)], key);
    };
    const int seqlen_kv = args_.batch.seqlen_kv[static_cast<size_t>(request)];
    int begin = seqlen_kv, end = 0;
    for (int key = 0; key < seqlen_kv; ++key)
      for (int row = 0; row < rows; ++row)
        if (sees(row, key)) begin = std::min(begin, key), end = key + 1;

    const float descale = get_scale(args_.q_scales, request, head) * get_scale(args_.k_scales, request, head);
    const float scale = args_.score.scale * args_.kv.k_scale * descale, cap = args_.score.logit_cap;
    const float log2e = 1.44269504f, scale_log2 = cap > 0.0f ? log2e : scale * log2e;
    for (int first_key = begin / 64 * 64; first_key < end; first_key += kKeys) {
      const auto row_in = [&](const TensorView& pool) {
        return [&, first_key](int row) {
          const int key = first_key + row;
          return key >= begin && key < end ? row_of(pool, request, head, key) : nullptr;
        };
      };
      tile.attend(
          row_in(args_.kv.k), static_cast<int>(args_.q.shape[2]), row_in(args_.kv.v),
          static_cast<int>(args_.out.shape[2]), begin - first_key, end - first_key, scale_log2,
          [&](float score) { return cap > 0.0f ? cap * std::tanh(score * scale / cap) : score; },
          [&](int row, int key) {
            return first_key + key < end && first_key + key >= begin && sees(row, first_key + key);
          });
    }
    for (int row = 0; row < rows; ++row) {
      if (tile.row_sum(row) == 0.0f) continue;
      const int64_t token = queries[static_cast<size_t>(row)].token, query_head = q_head(row);
      const float max = tile.row_max(row) * scale_log2, sum = tile.row_sum(row) / 256.0f;
      const float sink = args_.score.sinks.empty()
                             ? 0.0f
                             : std::exp2(args_.score.sinks[static_cast<size_t>(query_head)] * log2e - max);
      const float factor =
          args_.kv.v_scale * get_scale(args_.v_scales, request, head) / (sum + sink) / 256.0f;
      for (int64_t d = 0; d < args_.out.shape[2]; ++d)
        store(args_.out, offset(args_.out, token, query_head, d),
              static_cast<double>(tile.out(row, static_cast<int>(d)) * factor));
      if (!args_.lse.empty())
        store(args_.lse, offset(args_.lse, token, query_head),
              static_cast<double>(max / log2e + std::log(sum)));
    }
  }

  void write_empty(int64_t token, int64_t head) {
    for (int64_t d = 0; d < args_.out.shape[2]; ++d) store(args_.out, offset(args_.out, token, head, d), 0.0);
    if (!args_.lse.empty())
      store(args_.lse, offset(args_.lse, token, head), static_cast<double>(kernels::kEmptyLse));
  }

  const AttentionArgs& args_;
};

void emulated_prefill(const AttentionArgs& args, const BuiltCase&) {
  kernels::check(args);
  if (args.q.shape[2] <= 64)
    EmulatedPrefill<64, 64>(args).run();
  else if (args.q.shape[2] <= 128)
    EmulatedPrefill<128, 128>(args).run();
  else
    EmulatedPrefill<192, 128>(args).run();
}

std::vector<AttentionCase> small_cases() {
  std::vector<AttentionCase> cases;
  // Six variants, each with some of the head dims.
  constexpr std::pair<int, int> kDims[] = {{64, 64}, {128, 128}, {48, 32}, {192, 128}, {64, 64}, {96, 80}};
  for (int d = 0; d < 6; ++d)
    for (int i = d % 3; i < 6; i += 3) {
      const auto [qk, v] = kDims[d];
      AttentionCase c{.requests = {{20, 70}, {9, 141}},
                      .num_q_heads = 2,
                      .num_kv_heads = i == 1 ? 2 : 1,
                      .head_dim_qk = qk,
                      .head_dim_v = v,
                      .q_dtype = DType::kF8E4M3,
                      .out_dtype = i % 2 == 0 ? DType::kF32 : DType::kBF16,
                      .kv_dtype = DType::kF8E4M3,
                      .page_size = i % 2 == 0 ? 16 : 1,
                      .page_order = PageOrder::kShuffled,
                      .head_scales = i != 1,
                      .seed = cases.size() + 1};
      if (i == 1) c.window_left = 30, c.k_scale = 0.5f, c.v_scale = 1.7f;
      if (i == 2) c.causal = false, c.sinks = true;
      if (i == 3) c.logit_cap = 8.0f;
      if (i == 4) c.spread = ScoreSpread::kSharp, c.requests = {{33, 300}};
      if (i == 5) c.spread = ScoreSpread::kFlat, c.requests = {{3, 2}, {0, 5}, {1, 260}};
      cases.push_back(c);
    }
  return cases;
}

TEST(PrefillE4m3, ConformsWhenEmulatedOnTheCpu) { run_conformance(emulated_prefill, small_cases()); }

}  // namespace
}  // namespace attend::conformance
