// Skinny GEMM of quantised weights: out = x W^T for up to 8 rows of x, on mma.sync, with codes widened in
// registers.
//
//   tile        all rows of x (kTokens = 1 or 8) x a CTA's range of output features, kGroups groups of 8 (8
//               or 16) between two barriers; a K-block is 128 bytes of a row: 128 inputs in fp8, 256 in int4
//   warps       8, all alike: each brings its own K-blocks by cp.async, two groups of rows at a time, and
//               multiplies them with mma.m16n8k16, of which W is the left factor
//   registers   128 at most: two CTAs fit an SM
//   shared      partial sums; all of x, in the order that lanes read it in; kStages stages a warp of 2 KB of
//               codes and 128 bytes of scales and zeros
//   bytes       W once from memory; x once per CTA, from L2
//   bound       reading W; 2 (int4) and 3.4 (fp8) instructions a code, where reading leaves 3.5 and 7
//
// Factors are exact: codes, in int4 and bf16 128 + q, whose excess is taken off in float32; sums over a
// group's inputs, of at most a K-block, are multiplied by its scale in float32. K-blocks are dealt and
// partial sums added as in skinny_gemm.cuh: a row's bits depend on the row alone.
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
// which the warp takes them: pair after pair, its K-blocks of each.
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
      : range_(range), joined_(kHeads || product.gated) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    stages_ = shared + static_cast<uint32_t>(warp * kStageBytes);
    to_ = swizzled_piece(lane / kPieces, lane % kPieces);
    from_ = swizzled_piece(lane % 8, lane / 8);
    row_bytes_ = kInt4 ? weight.in_features / 2 : weight.in_features;
    codes_ = static_cast<const char*>(weight.data) + int64_t{row_bytes_} * (lane / kPieces) +
             lane % kPieces * 16 + warp * kRowBytes;
    next_rows_bytes_ = int64_t{row_bytes_} * (32 / kPieces);
    const int to_second_group = kHeads ? product.head_half : product.gated ? product.out_features : kFeatures;
    second_group_bytes_ = int64_t{row_bytes_} * to_second_group;
    if constexpr (kHeads) {
      head_half_ = product.head_half;
      head_shift_ = 31 - __clz(product.head_half / kFeatures);
    }
    locate_words(product, weight, warp, lane, to_second_group);
    k_blocks_of_pair_ = (range.num_k_blocks - warp + kSkinnyWarps - 1) / kSkinnyWarps;
    left_ = num_pairs(range.end - range.begin) * k_blocks_of_pair_;
    if (left_ > 0) begin_pair();
  }

  // The pairs of so many n-tiles.
  __device__ __forceinline__ int num_pairs(int num_n_tiles) const {
    return joined_ ? num_n_tiles : (num_n_tiles + 1) / 2;
  }

  // Fills as many stages as come before x: loads return in the order in which they are issued, so x is not
  // queued behind more than half of all of W, or of the stages.
  __device__ __forceinline__ void start() {
    num_started_ = min(kStages / 2, (left_ + 1) / 2);
    fill(0, num_started_);
  }
  // Fills the others.
  __device__ __forceinline__ void start_rest() { fill(num_started_, kStages); }

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
    copy_next(stages_ + stage_);
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
  __device__ __forceinline__ void locate_words(const SkinnyGemmParams& product, const QuantisedWeight& weight,
                                               int warp, int lane, int to_second_group) {
    const bool zeros = kInt4 && lane >= kPairRows;
    words_ = static_cast<const char*>(zeros ? weight.zeros : weight.scales);
    if (!kInt4 && lane >= kPairRows) words_ = nullptr;
    word_row_bytes_ = weight.scale_columns * (zeros ? 1 : kInt4 ? 2 : 4);
    word_row_ = lane % kFeatures;
    word_second_group_ = lane / kFeatures % 2 == 0 ? 0 : to_second_group;
    const int num_rows = product.out_features * (product.gated ? 2 : 1);
    outs_shift_ = weight.group_outs >= num_rows ? 31 : 31 - __clz(weight.group_outs);
    // Where the word of the warp's first K-block lies in a row, and how far that of its next is: two scales
    // of two bytes or zeros of one a K-block in int4; in fp8 a scale of four bytes for one or several.
    if constexpr (kInt4) {
      first_word_ = zeros ? 2 * warp & ~3 : 4 * warp;
      word_step_ = (zeros ? 2 : 4) * kSkinnyWarps;
    } else {
      first_word_ = 4 * group_of_input(weight, warp * kFp8RowInputs);
      word_step_ = 4 * group_of_input(weight, kSkinnyWarps * kFp8RowInputs);
    }
  }

  // The first row of a pair's first group.
  __device__ __forceinline__ int first_row() const {
    if (!joined_) return (range_.begin + 2 * pair_) * kFeatures;
    const int n_tile = range_.begin + pair_;
    if constexpr (kHeads) return n_tile * kFeatures + (n_tile >> head_shift_) * head_half_;
    return n_tile * kFeatures;
  }

  __device__ __forceinline__ void begin_pair() {
    const int row = first_row();
    // A second group that is not there is the first once more.
    const bool has_second = joined_ || range_.begin + 2 * pair_ + 1 < range_.end;
    next_ = codes_ + int64_t{row} * row_bytes_;
    to_second_ = has_second ? second_group_bytes_ : 0;
    const int word_row = (row + word_row_ + (has_second ? word_second_group_ : 0)) >> outs_shift_;
    if (words_ != nullptr) next_word_ = words_ + int64_t{word_row} * word_row_bytes_ + first_word_;
    left_of_pair_ = k_blocks_of_pair_;
  }

  __device__ __forceinline__ void fill(int begin, int end) {
#pragma unroll 1
    for (int stage = begin; stage < end; ++stage)
      copy_next(stages_ + static_cast<uint32_t>(stage * kStageStride));
  }

  // The next K-block, if there is one, as a group of copies.
  __device__ __forceinline__ void copy_next(uint32_t stage) {
    if (left_ > 0) {
      copy_group(next_, stage + to_);
      copy_group(next_ + to_second_, stage + to_ + kFeatures * kRowBytes);
      if (words_ != nullptr)
        ptx::cp_async_4(stage + kWeightBytes + threadIdx.x % 32 * kWordBytes, next_word_);
      next_ += kSkinnyWarps * kRowBytes;
      next_word_ += word_step_;
      --left_;
      if (--left_of_pair_ == 0 && left_ > 0) {
        ++pair_;
        begin_pair();
      }
    }
    ptx::cp_async_commit_group();
  }

  __device__ __forceinline__ void copy_group(const char* from, uint32_t to) const {
    constexpr int kRowsAtOnce = 32 / kPieces;
    ptx::cp_async_16(to, from);
    // The other four rows are swizzled the other way.
    ptx::cp_async_16((to ^ (kRowsAtOnce * 16)) + kRowsAtOnce * kRowBytes, from + next_rows_bytes_);
  }

  const CtaRange range_;
  const bool joined_;  // an n-tile has two groups
  uint32_t stages_, to_, from_;
  uint32_t stage_ = 0;  // where the oldest begins
  // Of this lane: its rows, its word of scales or zeros, and what it copies next.
  const char *codes_, *words_, *next_, *next_word_ = nullptr;
  int64_t second_group_bytes_, next_rows_bytes_, to_second_;
  int row_bytes_, word_row_, word_second_group_, word_row_bytes_, first_word_, word_step_;
  int outs_shift_, head_half_, head_shift_;
  int k_blocks_of_pair_, num_started_ = 0;
  int pair_ = 0, left_, left_of_pair_;  // K-blocks, of all pairs and of this one
};

// x in shared memory, normalized if it is, in the order in which lanes take it: of each 32 inputs and row,
// lane t of four has the 16 bytes of pairs that belong to a step's codes (widen_codes.cuh).
template <class T, WeightFormat kFormat, int kTokens>
class PairedX {
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;
  static constexpr int kUnitInputs = 8, kUnitBytes = 16, kLanes = 4;
  static constexpr int kUnitsAtOnce = kTokens == 1 ? 4 : 1;

 public:
  // int4 in bf16 is multiplied as 128 + q, so the sums of each kInt4GroupInputs inputs are wanted too: what
  // the zero point and 128 add to a product is taken off in float32. (In f16, as 1024 + q, that would cost
  // accuracy.)
  static constexpr bool kSums = kFormat == WeightFormat::kInt4 && kCanNorm;

  static __host__ __device__ int shared_bytes(int in_features) {
    return kTokens * (in_features * 2 + (kSums ? in_features / kInt4GroupInputs * 4 : 0));
  }

  // Partial sums of squares of a thread's elements, by row.
  using Squares = float[kTokens];
  // The norm's weights of a thread's units, which no kernel before writes.
  using Norm = uint4[kUnitsAtOnce];

  static __device__ __forceinline__ void load_norm(const SkinnyGemmParams& params, int first, Norm& norm) {
    if (!kCanNorm || params.norm == nullptr) return;
#pragma unroll
    for (int i = 0; i < kUnitsAtOnce; ++i) {
      const int unit = first + i * kSkinnyThreads;
      if (unit < params.in_features / kUnitInputs)
        norm[i] = load_unit(static_cast<const T*>(params.norm), unit);
    }
  }

  // By all threads, x of the rows there are; `norm`: load_norm() of threadIdx.x; `meanwhile()` once, behind
  // the first loads.
  template <class Meanwhile>
  static __device__ __forceinline__ void bring(const SkinnyGemmParams& params, uint32_t to, Norm& norm,
                                               Squares& squares, const Meanwhile& meanwhile) {
    const int num_units = params.in_features / kUnitInputs;
    const uint32_t to_sums = to + kTokens * params.in_features * 2;
    int first = static_cast<int>(threadIdx.x);
    bool is_first = true;
#pragma unroll 1
    do {
      uint4 x[kUnitsAtOnce][kTokens];
#pragma unroll
      for (int i = 0; i < kUnitsAtOnce; ++i) {
        const int unit = first + i * kSkinnyThreads;
        if (unit >= num_units) break;
#pragma unroll
        for (int token = 0; token < kTokens; ++token)
          if (token < params.num_rows)
            x[i][token] = load_unit(static_cast<const T*>(params.x) + token * params.x_stride, unit);
      }
      if (is_first)
        meanwhile();
      else
        load_norm(params, first, norm);
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
          if constexpr (kSums) {
            // Lanes that have a group of inputs among them.
            constexpr int kLanesOfGroup = kInt4GroupInputs / kUnitInputs;
            float sum = sum_of(elements);
#pragma unroll
            for (int step = kLanesOfGroup / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (unit % kLanesOfGroup == 0)
              ptx::st_shared_4(to_sums + (unit / kLanesOfGroup * kTokens + token) * 4, __float_as_uint(sum));
          }
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

  // The sums of a group of inputs, of this lane's tokens.
  static __device__ __forceinline__ float2 take_sums(uint32_t from, int in_features, int group) {
    const uint32_t sums = from + kTokens * in_features * 2 + group * kTokens * 4;
    if constexpr (kTokens == 1) {
      const float sum = __uint_as_float(ptx::ld_shared_4(sums));
      return make_float2(sum, sum);
    } else {
      const uint32_t lane_sums = sums + threadIdx.x % kLanes * 8;
      return make_float2(__uint_as_float(ptx::ld_shared_4(lane_sums)),
                         __uint_as_float(ptx::ld_shared_4(lane_sums + 4)));
    }
  }

 private:
  static __device__ __forceinline__ float sum_of(const uint4& elements) {
    const auto* const pairs = reinterpret_cast<const __nv_bfloat162*>(&elements);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __bfloat1622float2(pairs[i]);
      sum += pair.x + pair.y;
    }
    return sum;
  }
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
  static constexpr int kPiecesOfHalf = kPieces / 2;
  static_assert(kGroups % 2 == 0);

 public:
  static int shared_bytes(int in_features) {
    return kPartialSumBytes + Pipeline::kSharedBytes + X::shared_bytes(in_features);
  }

  __device__ SkinnyCodesCta(const SkinnyGemmParams& product, const QuantisedWeight& weight,
                            const Epilogue& epilogue, char* shared)
      : Outputs(product, epilogue, shared, kRowInputs<kFormat>),
        weight_(weight),
        pipeline_(product, weight, range_, ptx::shared_address(shared) + kPartialSumBytes),
        x_(ptx::shared_address(shared) + kPartialSumBytes + Pipeline::kSharedBytes) {}

  // W does not depend on the kernel before, so the pipeline fills while that ends.
  __device__ __forceinline__ void run() {
    typename X::Norm norm;
    X::load_norm(params_, static_cast<int>(threadIdx.x), norm);
    pipeline_.start();
    ptx::griddepcontrol_wait();
    typename X::Squares squares = {};
    X::bring(params_, x_, norm, squares, [&] { pipeline_.start_rest(); });
    ptx::launch_dependents();
    store_squares(squares);
    __syncthreads();
    const float norm_scale = this->norm_scale_of(static_cast<int>(threadIdx.x) / kFeatures % kTokens);
    for (int n_tile = range_.begin; n_tile < range_.end; n_tile += range_.at_once) {
      typename Outputs::Prefetched prefetched;
      this->prefetch(n_tile, prefetched);
      const int num_pairs = pipeline_.num_pairs(min(range_.at_once, range_.end - n_tile));
#pragma unroll 1
      for (int pair = 0; pair < num_pairs; ++pair) {
        float sums[4] = {};
#pragma unroll 1
        for (int k_block = warp_; k_block < range_.num_k_blocks; k_block += kSkinnyWarps)
          multiply(k_block, sums);
        store_partial_sums(pair, sums);
      }
      __syncthreads();
      this->write(n_tile, prefetched, [&](int) { return norm_scale; });
      __syncthreads();
    }
  }

 private:
  // A stage. A lane has the sums of rows l / 4 of both groups, and of tokens 2 (l % 4) and the next.
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
      if constexpr (X::kSums) {
        const float2 x_sums = X::take_sums(x_, params_.in_features, 2 * k_block + half);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          products[i] = -__uint_as_float(zeros[half][i / 2]) * (i % 2 == 0 ? x_sums.x : x_sums.y);
      }
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
      widen(words.of_group[0], step, zeros[0], factors[0], factors[2]);
      widen(words.of_group[1], step, zeros[1], factors[1], factors[3]);
      const bool second = kFp8 ? piece % 2 == 1 : step == 1;
      ptx::mma_m16n8k16(products, factors, second ? x.z : x.x, second ? x.w : x.y, T{});
    }
  }

  // A step's pairs of a word; with X::kSums of 128 + q.
  static __device__ __forceinline__ void widen(uint32_t word, int step, uint32_t zero, uint32_t& first,
                                               uint32_t& second) {
    if constexpr (X::kSums) {
      first = shifted_int4<T>(word >> (8 * step));
      second = shifted_int4<T>(word >> (8 * step + 4));
    } else {
      widen_step<T, kFormat>(word, step, zero, first, second);
    }
  }

  // `scales`, `zeros`: of this lane's rows, by half of the K-block and group; zeros as widen_int4() takes
  // them, with X::kSums 128 + zero in float32.
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
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          zeros[half][group] = shifted_zero_of<T>(four, first + half);
          if constexpr (X::kSums) zeros[half][group] &= 0xffff0000u;
        }
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

  __device__ __forceinline__ void store_partial_sums(int pair, const float (&sums)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * (lane_ % 4) + i % 2, group = 2 * pair + i / 2;
      if (token < kTokens)
        partial_[(warp_ * kGroups + group) * kGroupOutputs + token * kFeatures + lane_ / 4] = sums[i];
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

  explicit CodeRanges(const SkinnyGemmParams& params) {
    const int sms = num_sms(), n_tiles = num_n_tiles(params);
    const auto most = [&](int ctas) { return (n_tiles + ctas - 1) / ctas; };
    const bool fits = skinny_code_x_bytes(params.num_rows, params.in_features) <= kMaxXBytesOfTwo;
    ctas_of_sm = fits && params.num_rows == 1 && 2 * most(2 * sms) <= most(sms) ? 2 : 1;
    num_ctas = std::min(n_tiles, ctas_of_sm * sms);
  }

  static constexpr int kMaxXBytesOfTwo = 40 << 10;
};
template <int kTokens, int kCtasOfSm>
inline constexpr int kCodeStages = kTokens > 1      ? 8
                                   : kCtasOfSm == 2 ? 4
                                                    : 6;

// Groups of a pass, whose partial sums there is room for.
template <int kTokens>
inline constexpr int kCodeGroups = kTokens > 1 ? 8 : 16;

// Calls launch.operator()<kTokens, kCtasOfSm>() for a product.
template <class Launch>
void visit_code_shape(const SkinnyGemmParams& product, const CodeRanges& ranges, const Launch& launch) {
  if (product.num_rows > 1) return launch.template operator()<kMaxSkinnyCodeRows, 1>();
  if (ranges.ctas_of_sm == 2) return launch.template operator()<1, 2>();
  launch.template operator()<1, 1>();
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

template <class T, WeightFormat kFormat, int kTokens, int kCtasOfSm>
__global__ void __launch_bounds__(kSkinnyThreads, kCtasOfSm)
    skinny_codes_kernel(const __grid_constant__ SkinnyCodesParams params) {
  extern __shared__ __align__(128) char shared[];
  SkinnyCodesCta<T, kFormat, kCodeGroups<kTokens>, kTokens, kCodeStages<kTokens, kCtasOfSm>,
                 SkinnyGemmEpilogue>(params.product, params.weight, SkinnyGemmEpilogue(params.product),
                                     shared)
      .run();
}

template <class T>
void launch_skinny_codes(const SkinnyCodesParams& params, void* stream) {
  const CodeRanges ranges(params.product);
  const auto of_format = [&](auto format) {
    visit_code_shape(params.product, ranges, [&]<int kTokens, int kCtasOfSm>() {
      using Cta = SkinnyCodesCta<T, format(), kCodeGroups<kTokens>, kTokens, kCodeStages<kTokens, kCtasOfSm>,
                                 SkinnyGemmEpilogue>;
      launch_code_ctas<Cta, skinny_codes_kernel<T, format(), kTokens, kCtasOfSm>>(params, params.product,
                                                                                  ranges, stream);
    });
  };
  if (params.weight.format == WeightFormat::kFp8)
    of_format(std::integral_constant<WeightFormat, WeightFormat::kFp8>{});
  else
    of_format(std::integral_constant<WeightFormat, WeightFormat::kInt4>{});
}

}  // namespace attend::kernels::cuda
