// Skinny GEMM of quantised weights: out = x W^T for up to 8 rows of x, on mma.sync, with codes widened in
// registers.
//
//   tile        all rows of x (kTokens = 1 or 8) x a CTA's range of output features, kGroups groups of 8 (2,
//               4, 6 or 8) at once; a K-block is 128 bytes of a row: 128 inputs in fp8, 256 in int4
//   warps       8, all alike: each brings its own K-blocks by cp.async, two groups of rows at a time, and
//               multiplies them with mma.m16n8k16, of which W is the left factor
//   registers   128 at most: two CTAs fit an SM
//   shared      partial sums; all of x, in the order that lanes read it in; kStages stages a warp of 2 KB of
//               codes and 128 bytes of scales and zeros
//   bytes       W once from memory; x once per CTA, from L2
//   bound       reading W; 1.9 (int4) and 2.6 (fp8) instructions a code, where reading leaves 3.5 and 7
//
// Codes are exact factors; sums over a group's inputs, of at most a K-block, are multiplied by its scale in
// float32. K-blocks are dealt and partial sums added as in skinny_gemm.cuh: a row's bits depend on the row
// alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/common/load_weight.cuh"
#include "attend/kernels/gemm/cuda/common/widen_codes.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_codes_kernel.h"
#include "attend/kernels/gemm/cuda/sm80/skinny_outputs.cuh"

namespace attend::kernels::cuda {

template <WeightFormat kFormat>
inline constexpr int kRowInputs = kFormat == WeightFormat::kFp8 ? kFp8RowInputs : kInt4RowInputs;

// Producer: each warp's own pipeline of cp.async. A stage is a K-block of a pair of groups of eight rows of
// W, the 16 rows of the left factor, with the scales (and zeros) of its rows. Stages come in the order in
// which the warp takes them: for each pass, and each of its K-blocks, all pairs.
template <WeightFormat kFormat, int kStages, bool kHeads>
class CodesPipeline {
  static constexpr int kPairRows = 2 * kFeatures;
  static constexpr int kWeightBytes = kPairRows * kRowBytes;
  static constexpr int kWordBytes = 4;  // of a row's scales, and of its zeros
  static constexpr int kZerosOffset = kWeightBytes + kPairRows * kWordBytes;
  static constexpr int kStageBytes = kZerosOffset + kPairRows * kWordBytes;
  static constexpr int kStageStride = kSkinnyWarps * kStageBytes;
  static constexpr bool kInt4 = kFormat == WeightFormat::kInt4;

 public:
  static constexpr int kSharedBytes = kStages * kStageStride;

  // Of a warp's stage.
  struct Stage {
    uint32_t codes;  // of this lane, in the order of ldmatrix: of the first group and half of the K-block
    uint32_t words;  // of this lane's row of the first group: its scales
  };

  __device__ CodesPipeline(const SkinnyGemmParams& product, const QuantisedWeight& weight,
                           const CtaRange& range, uint32_t shared)
      : weight_(weight), range_(range), joined_(kHeads || product.gated) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    stages_ = shared + static_cast<uint32_t>(warp_ * kStageBytes);
    to_ = swizzled_piece(lane / kPieces, lane % kPieces);
    from_ = swizzled_piece(lane % 8, lane / 8);
    row_bytes_ = kInt4 ? weight.in_features / 2 : weight.in_features;
    codes_ =
        static_cast<const char*>(weight.data) + int64_t{row_bytes_} * (lane / kPieces) + lane % kPieces * 16;
    to_second_group_ = kHeads ? product.head_half : product.gated ? product.out_features : kFeatures;
    if constexpr (kHeads) {
      head_half_ = product.head_half;
      head_shift_ = 31 - __clz(product.head_half / kFeatures);
    }
    copies_zeros_ = kInt4 && lane >= kPairRows;
    words_ = static_cast<const char*>(copies_zeros_ ? weight.zeros : weight.scales);
    word_row_ = lane % kFeatures + (lane / kFeatures % 2 == 0 ? 0 : to_second_group_);
    const int num_rows = product.out_features * (product.gated ? 2 : 1);
    outs_shift_ = weight.group_outs >= num_rows ? 31 : 31 - __clz(weight.group_outs);
    k_blocks_of_pass_ = (range.num_k_blocks - warp_ + kSkinnyWarps - 1) / kSkinnyWarps;
    begin_pass(range.begin);
    has_next_ = k_blocks_of_pass_ > 0 && range.begin < range.end;
  }

  // The pairs of the pass that begins with this n-tile.
  __device__ __forceinline__ int num_pairs(int n_tile) const {
    const int num_n_tiles = min(range_.at_once, range_.end - n_tile);
    return joined_ ? num_n_tiles : (num_n_tiles + 1) / 2;
  }

  // Fills as many stages as come before x: loads return in the order in which they are issued, so x is not
  // queued behind more than half of all of W, or of the stages.
  __device__ __forceinline__ void start() {
    int left = 0;
    for (int n_tile = range_.begin; n_tile < range_.end; n_tile += range_.at_once)
      left += num_pairs(n_tile) * k_blocks_of_pass_;
    num_started_ = min(kStages / 2, (left + 1) / 2);
#pragma unroll 1
    for (int stage = 0; stage < num_started_; ++stage) {
      copy_next(stages_ + static_cast<uint32_t>(stage * kStageStride));
      ptx::cp_async_commit_group();
    }
  }
  // Fills the others.
  __device__ __forceinline__ void start_rest() {
#pragma unroll 1
    for (int stage = num_started_; stage < kStages; ++stage) {
      copy_next(stages_ + static_cast<uint32_t>(stage * kStageStride));
      ptx::cp_async_commit_group();
    }
  }

  // Waits for the oldest stage.
  __device__ __forceinline__ Stage wait() const {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
    const uint32_t begin = stages_ + stage_;
    return {begin + from_, begin + kWeightBytes + static_cast<uint32_t>(threadIdx.x % 32 / 4) * kWordBytes};
  }
  // Fills the oldest stage anew: nobody of the warp reads it any longer.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    if (has_next_) copy_next(stages_ + stage_);
    ptx::cp_async_commit_group();
    stage_ = stage_ + kStageStride == kSharedBytes ? 0 : stage_ + kStageStride;
  }

  __device__ static uint32_t half(uint32_t codes, int half) { return codes ^ (half * (kRowBytes / 2)); }
  __device__ static uint32_t group(uint32_t codes, int group) {
    return codes + group * kFeatures * kRowBytes;
  }
  // Of this lane's row of a group.
  __device__ static uint32_t scales(const Stage& stage, int group) {
    return ptx::ld_shared_4(stage.words + group * kFeatures * kWordBytes);
  }
  __device__ static uint32_t zeros(const Stage& stage, int group) {
    return ptx::ld_shared_4(stage.words + (kPairRows + group * kFeatures) * kWordBytes);
  }

 private:
  __device__ __forceinline__ void begin_pass(int n_tile) {
    n_tile_ = n_tile;
    num_pairs_ = num_pairs(n_tile);
    k_block_ = warp_;
    pair_ = 0;
  }

  // The first row of a pair's first group.
  __device__ __forceinline__ int first_row() const {
    if (!joined_) return (n_tile_ + 2 * pair_) * kFeatures;
    const int n_tile = n_tile_ + pair_;
    if constexpr (kHeads) return n_tile * kFeatures + (n_tile >> head_shift_) * head_half_;
    return n_tile * kFeatures;
  }

  // There is one.
  __device__ __forceinline__ void copy_next(uint32_t stage) {
    if (!has_next_) return;
    const int row = first_row();
    const bool has_second = joined_ || n_tile_ + 2 * pair_ + 1 < range_.end;
    const char* const from = codes_ + int64_t{row} * row_bytes_ + k_block_ * kRowBytes;
    copy_group(from, stage + to_);
    if (has_second)
      copy_group(from + int64_t{to_second_group_} * row_bytes_, stage + to_ + kFeatures * kRowBytes);
    copy_word(row, has_second, stage);
    if (++pair_ < num_pairs_) return;
    pair_ = 0;
    k_block_ += kSkinnyWarps;
    if (k_block_ < range_.num_k_blocks) return;
    has_next_ = n_tile_ + range_.at_once < range_.end;
    begin_pass(n_tile_ + range_.at_once);
  }

  __device__ __forceinline__ void copy_group(const char* from, uint32_t to) const {
    constexpr int kRowsAtOnce = 32 / kPieces;
    ptx::cp_async_16(to, from);
    // The other four rows are swizzled the other way.
    ptx::cp_async_16((to ^ (kRowsAtOnce * 16)) + kRowsAtOnce * kRowBytes,
                     from + int64_t{row_bytes_} * kRowsAtOnce);
  }

  // The word that holds the scales of the K-block for each row, and that of the zeros.
  __device__ __forceinline__ void copy_word(int first_row, bool has_second, uint32_t stage) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (words_ == nullptr || (!kInt4 && lane >= kPairRows) || (!has_second && lane / kFeatures % 2 == 1))
      return;
    const int64_t begin = int64_t{(first_row + word_row_) >> outs_shift_} * weight_.scale_columns;
    const uint32_t to = stage + kWeightBytes + lane * kWordBytes;
    if constexpr (kInt4) {
      const int64_t at = begin + 2 * k_block_;
      ptx::cp_async_4(to, words_ + (copies_zeros_ ? at & ~int64_t{3} : 2 * at));
    } else {
      const int column = group_of_input(weight_, k_block_ * kFp8RowInputs);
      ptx::cp_async_4(to, words_ + 4 * (begin + column));
    }
  }

  const QuantisedWeight& weight_;
  const CtaRange range_;
  const int warp_ = static_cast<int>(threadIdx.x) / 32;
  const bool joined_;  // an n-tile has two groups
  bool copies_zeros_, has_next_;
  uint32_t stages_, to_, from_;
  uint32_t stage_ = 0;          // where the oldest begins
  const char *codes_, *words_;  // of this lane
  int row_bytes_, to_second_group_, word_row_, outs_shift_, head_half_, head_shift_;
  int k_blocks_of_pass_, num_started_ = 0;
  int n_tile_, num_pairs_, k_block_, pair_;  // what is copied next
};

// x in shared memory, normalized if it is, in the order in which lanes take it: of each 32 inputs and row,
// lane t of four has the 16 bytes of pairs that belong to a step's codes (widen_codes.cuh).
template <class T, WeightFormat kFormat, int kTokens>
class PairedX {
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;
  static constexpr int kUnitInputs = 8, kUnitBytes = 16, kLanes = 4;
  static constexpr int kUnitsAtOnce = kTokens == 1 ? 4 : 1;

 public:
  // Partial sums of squares of a thread's elements, by row.
  using Squares = float[kTokens];

  // By all threads, x of the rows there are; `meanwhile()` once, behind the first loads.
  template <class Meanwhile>
  static __device__ __forceinline__ void bring(const SkinnyGemmParams& params, uint32_t to, Squares& squares,
                                               const Meanwhile& meanwhile) {
    const int num_units = params.in_features / kUnitInputs;
    int first = static_cast<int>(threadIdx.x);
    bool is_first = true;
#pragma unroll 1
    do {
      uint4 x[kUnitsAtOnce][kTokens], norm[kUnitsAtOnce];
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit >= num_units) break;
#pragma unroll
        for (int token = 0; token < kTokens; ++token)
          if (token < params.num_rows)
            x[i][token] = load_unit(static_cast<const T*>(params.x) + token * params.x_stride, unit);
        if (kCanNorm && params.norm != nullptr) norm[i] = load_unit(static_cast<const T*>(params.norm), unit);
      }
      if (is_first) meanwhile();
      is_first = false;
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit >= num_units) break;
#pragma unroll
        for (int token = 0; token < kTokens; ++token) {
          if (token >= params.num_rows) break;
          uint4 elements = x[i][token];
          if constexpr (kCanNorm)
            if (params.norm != nullptr) {
              squares[token] += sum_of_squares_of(elements);
              elements = multiply_elements(elements, norm[i]);
            }
          ptx::st_shared_16(to + ((unit / kLanes * kTokens + token) * kLanes + unit % kLanes) * kUnitBytes,
                            paired(elements));
        }
      }
      first += kUnitsAtOnce * kSkinnyThreads;
    } while (first < num_units);
  }

  // Of 32 inputs, by number, for this lane.
  static __device__ __forceinline__ uint4 take(uint32_t from, int inputs32) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int token = kTokens == 1 ? 0 : lane / kLanes;
    return ptx::ld_shared_16(from + ((inputs32 * kTokens + token) * kLanes + lane % kLanes) * kUnitBytes);
  }

 private:
  // Words with inputs (0, 1), (2, 3), (4, 5), (6, 7) of a lane's eight in int4; in fp8 (0, 1) of the first
  // and of the second four, then (2, 3).
  static __device__ __forceinline__ uint4 load_unit(const T* row, int unit) {
    if constexpr (kFormat == WeightFormat::kInt4) {
      return *reinterpret_cast<const uint4*>(row + unit * kUnitInputs);
    } else {
      const T* const from = row + unit / kLanes * 32 + unit % kLanes * 4;
      const uint2 low = *reinterpret_cast<const uint2*>(from),
                  high = *reinterpret_cast<const uint2*>(from + 16);
      return make_uint4(low.x, high.x, low.y, high.y);
    }
  }
  // Inputs (0, 4), (1, 5), (2, 6), (3, 7) in int4; in fp8 (0, 2), (1, 3) of each four.
  static __device__ __forceinline__ uint4 paired(const uint4& words) {
    return make_uint4(__byte_perm(words.x, words.z, 0x5410), __byte_perm(words.x, words.z, 0x7632),
                      __byte_perm(words.y, words.w, 0x5410), __byte_perm(words.y, words.w, 0x7632));
  }
};

// Consumer. `Epilogue`: as of SkinnyOutputs.
template <class T, WeightFormat kFormat, int kGroups, int kTokens, int kStages, class Epilogue>
class SkinnyCodesCta : SkinnyOutputs<kGroups, kTokens, Epilogue> {
  using Outputs = SkinnyOutputs<kGroups, kTokens, Epilogue>;
  using Outputs::kGroupOutputs, Outputs::kPartialSumBytes;
  using Outputs::params_, Outputs::range_, Outputs::partial_, Outputs::row_squares_, Outputs::warp_,
      Outputs::lane_;
  using Pipeline = CodesPipeline<kFormat, kStages, Epilogue::kHeads>;
  using X = PairedX<T, kFormat, kTokens>;
  static constexpr int kPairs = kGroups / 2;
  static constexpr int kPiecesOfHalf = kPieces / 2;
  static_assert(kGroups % 2 == 0);

 public:
  static int shared_bytes(int in_features) {
    return kPartialSumBytes + Pipeline::kSharedBytes + kTokens * in_features * 2;
  }

  __device__ SkinnyCodesCta(const SkinnyGemmParams& product, const QuantisedWeight& weight,
                            const Epilogue& epilogue, char* shared)
      : Outputs(product, epilogue, shared, kRowInputs<kFormat>),
        weight_(weight),
        pipeline_(product, weight, range_, ptx::shared_address(shared) + kPartialSumBytes),
        x_(ptx::shared_address(shared) + kPartialSumBytes + Pipeline::kSharedBytes) {}

  // W does not depend on the kernel before, so the pipeline fills while that ends.
  __device__ __forceinline__ void run() {
    pipeline_.start();
    ptx::griddepcontrol_wait();
    typename X::Squares squares = {};
    X::bring(params_, x_, squares, [&] { pipeline_.start_rest(); });
    ptx::launch_dependents();
    store_squares(squares);
    __syncthreads();
    for (int n_tile = range_.begin; n_tile < range_.end; n_tile += range_.at_once) {
      typename Outputs::Prefetched prefetched;
      this->prefetch(n_tile, prefetched);
      const int num_pairs = pipeline_.num_pairs(n_tile);
      Sums sums = {};
      for (int k_block = warp_; k_block < range_.num_k_blocks; k_block += kSkinnyWarps)
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          if (pair < num_pairs) multiply(k_block, sums[pair]);
      store_partial_sums(sums);
      __syncthreads();
      this->write(n_tile, prefetched);
      __syncthreads();
    }
  }

 private:
  // A lane has rows l / 4 of both groups of a pair, and tokens 2 (l % 4) and the next.
  using Sums = float[kPairs][4];

  // A stage.
  __device__ __forceinline__ void multiply(int k_block, float (&sums)[4]) {
    const typename Pipeline::Stage stage = pipeline_.wait();
    float scales[2][2];  // [halves, groups]
    uint32_t zeros[2][2];
    load_scales(stage, scales, zeros);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t codes[2][kPiecesOfHalf];
#pragma unroll
      for (int group = 0; group < 2; ++group)
        ptx::ldmatrix_x4(codes[group], Pipeline::group(Pipeline::half(stage.codes, half), group));
      float products[4] = {};
#pragma unroll
      for (int piece = 0; piece < kPiecesOfHalf; ++piece)
        multiply_piece(k_block, half * kPiecesOfHalf + piece, {codes[0][piece], codes[1][piece]}, zeros[half],
                       products);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(products[i], scales[half][i / 2], sums[i]);
    }
    pipeline_.refill();
  }

  struct Words {
    uint32_t of_group[2];
  };
  // A word of codes of both rows.
  __device__ __forceinline__ void multiply_piece(int k_block, int piece, const Words& words,
                                                 const uint32_t (&zeros)[2], float (&products)[4]) const {
    constexpr bool kFp8 = kFormat == WeightFormat::kFp8;
    constexpr int kPiecesOf32Inputs = kFp8 ? 2 : 1, kSteps = kFp8 ? 1 : 2;
    constexpr int k32InputsOfBlock = kRowInputs<kFormat> / 32;
    const uint4 x = X::take(x_, k_block * k32InputsOfBlock + piece / kPiecesOf32Inputs);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t factors[4];
      widen_step<T, kFormat>(words.of_group[0], step, zeros[0], factors[0], factors[2]);
      widen_step<T, kFormat>(words.of_group[1], step, zeros[1], factors[1], factors[3]);
      const bool second = kFp8 ? piece % 2 == 1 : step == 1;
      ptx::mma_m16n8k16(products, factors, second ? x.z : x.x, second ? x.w : x.y, T{});
    }
  }

  // `scales`, `zeros`: of this lane's rows, by half of the K-block and group.
  __device__ __forceinline__ void load_scales(const typename Pipeline::Stage& stage, float (&scales)[2][2],
                                              uint32_t (&zeros)[2][2]) const {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      const uint32_t word = Pipeline::scales(stage, group);
      if constexpr (kFormat == WeightFormat::kFp8) {
        scales[0][group] = scales[1][group] = __uint_as_float(word);
        zeros[0][group] = zeros[1][group] = 0;
      } else {
        const float2 both = weight_.scale_element == Element::kBF16
                                ? __bfloat1622float2(pair_of_bits<__nv_bfloat162>(word))
                                : __half22float2(pair_of_bits<__half2>(word));
        scales[0][group] = both.x;
        scales[1][group] = both.y;
        // A word of zeros is of two K-blocks, of which a warp takes every eighth.
        const uint32_t four = weight_.zeros != nullptr ? Pipeline::zeros(stage, group) : 0x08080808u;
        const uint32_t first = warp_ % 2 * 2;
        zeros[0][group] = shifted_zero_of<T>(four, first);
        zeros[1][group] = shifted_zero_of<T>(four, first + 1);
      }
    }
  }

  __device__ __forceinline__ void store_squares(const typename X::Squares& squares) const {
    if (params_.norm == nullptr) return;
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      float sum = squares[token];
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane_ == 0) row_squares_[warp_ * kTokens + token] = sum;
    }
  }

  __device__ __forceinline__ void store_partial_sums(const Sums& sums) const {
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = 2 * (lane_ % 4) + i % 2, group = 2 * pair + i / 2;
        if (token < kTokens)
          partial_[(warp_ * kGroups + group) * kGroupOutputs + token * kFeatures + lane_ / 4] = sums[pair][i];
      }
  }

  const QuantisedWeight& weight_;
  Pipeline pipeline_;
  const uint32_t x_;
};

// How a product is divided: two CTAs an SM, whose epilogues and widening take turns, where that does not give
// some SMs more to do; stages for one or two.
struct CodeRanges {
  int ctas_of_sm, num_ctas;
  int num_groups;  // of the largest range

  explicit CodeRanges(const SkinnyGemmParams& params) {
    const int sms = num_sms(), n_tiles = num_n_tiles(params);
    const auto most = [&](int ctas) { return (n_tiles + ctas - 1) / ctas; };
    const bool fits = skinny_code_x_bytes(params.num_rows, params.in_features) <= kMaxXBytesOfTwo;
    ctas_of_sm = fits && params.num_rows == 1 && 2 * most(2 * sms) <= most(sms) ? 2 : 1;
    num_ctas = std::min(n_tiles, ctas_of_sm * sms);
    num_groups = most(num_ctas) * groups_of_n_tile(params);
  }
  int num_passes(int groups_at_once) const { return (num_groups + groups_at_once - 1) / groups_at_once; }

  static constexpr int kMaxXBytesOfTwo = 40 << 10;
};
template <int kTokens, int kCtasOfSm>
inline constexpr int kCodeStages = kTokens > 1      ? 8
                                   : kCtasOfSm == 2 ? 4
                                                    : 6;

// Calls launch.operator()<kGroups, kTokens, kCtasOfSm>() for a product.
template <class Launch>
void visit_code_shape(const SkinnyGemmParams& product, const CodeRanges& ranges, const Launch& launch) {
  const auto with_groups = [&]<int kTokens, int kCtasOfSm>() {
    // As few passes as can be; then as few groups at once as can be.
    if (ranges.num_passes(2) == ranges.num_passes(8))
      return launch.template operator()<2, kTokens, kCtasOfSm>();
    if (ranges.num_passes(4) == ranges.num_passes(8))
      return launch.template operator()<4, kTokens, kCtasOfSm>();
    if (ranges.num_passes(6) == ranges.num_passes(8))
      return launch.template operator()<6, kTokens, kCtasOfSm>();
    launch.template operator()<8, kTokens, kCtasOfSm>();
  };
  if (product.num_rows > 1) return with_groups.template operator()<kMaxSkinnyCodeRows, 1>();
  if (ranges.ctas_of_sm == 2) return with_groups.template operator()<1, 2>();
  with_groups.template operator()<1, 1>();
}

// `kKernel`: of CTAs `Cta`, with parameters that hold `product`.
template <class Cta, auto kKernel, class Params>
void launch_code_ctas(const Params& params, const SkinnyGemmParams& product, const CodeRanges& ranges,
                      void* stream) {
  allow_shared_memory<kKernel>(kLargeSharedBytes, "linear: shared memory");
  launch_dependent<Params>(kKernel, static_cast<unsigned>(ranges.num_ctas), kSkinnyThreads,
                           static_cast<size_t>(Cta::shared_bytes(product.in_features)), stream, params,
                           "linear");
}

template <class T, WeightFormat kFormat, int kGroups, int kTokens, int kCtasOfSm>
__global__ void __launch_bounds__(kSkinnyThreads, kCtasOfSm)
    skinny_codes_kernel(const __grid_constant__ SkinnyCodesParams params) {
  extern __shared__ __align__(128) char shared[];
  SkinnyCodesCta<T, kFormat, kGroups, kTokens, kCodeStages<kTokens, kCtasOfSm>, SkinnyGemmEpilogue>(
      params.product, params.weight, SkinnyGemmEpilogue(params.product), shared)
      .run();
}

template <class T>
void launch_skinny_codes(const SkinnyCodesParams& params, void* stream) {
  const CodeRanges ranges(params.product);
  const auto of_format = [&](auto format) {
    visit_code_shape(params.product, ranges, [&]<int kGroups, int kTokens, int kCtasOfSm>() {
      using Cta =
          SkinnyCodesCta<T, format(), kGroups, kTokens, kCodeStages<kTokens, kCtasOfSm>, SkinnyGemmEpilogue>;
      launch_code_ctas<Cta, skinny_codes_kernel<T, format(), kGroups, kTokens, kCtasOfSm>>(
          params, params.product, ranges, stream);
    });
  };
  if (params.weight.format == WeightFormat::kFp8)
    of_format(std::integral_constant<WeightFormat, WeightFormat::kFp8>{});
  else
    of_format(std::integral_constant<WeightFormat, WeightFormat::kInt4>{});
}

}  // namespace attend::kernels::cuda
