// Skinny GEMM: out = x W^T for up to 32 rows of x, on mma.sync.
//
//   tile        all rows of x (kTokens = 1, 8, 16 or 32) x a CTA's range of output features, kGroups groups
//               of 8 (1, 2, 4 or 6) per pass; K-blocks of 64, distributed over the warps (sliced-K)
//   warps       8, all alike: each loads its own K-blocks with cp.async, multiplies them with mma.m16n8k16
//               and stores partial sums in shared memory; all warps add them in one order
//   registers   86 to 218 in bf16, 76 to 210 in f16: 128 at most if two CTAs fit on an SM
//   shared      partial sums, and up to 12 stages per warp with kGroups KB of W, 128 kTokens bytes of x and
//               256 bytes of norm weights each. Up to 227 KB, or 99 KB if an SM has no more
//   bytes       W once from memory; x once per CTA and pass, from L2
//   bound       reading W
#pragma once

#include <cstdint>
#include <type_traits>

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_outputs.cuh"

namespace attend::kernels::cuda::sm80 {

// Producer: each warp has its own cp.async pipeline. A stage is one K-block: kGroups groups of rows of W,
// kTokens rows of x and one row of norm weights. K-blocks follow the order in which the warp multiplies them:
// all of its slice of K for one pass, then for the next. `kHeads`: params.head_half is not 0.
template <int kGroups, int kTokens, int kPipelineBytes, bool kHeads>
class SkinnyGemmPipeline {
  static constexpr int kWeightBytes = kGroups * kFeatures * kRowBytes;
  static constexpr int kNormBytes = 2 * kRowBytes;  // as many as float32 weights need
  static constexpr int kStageBytes = kWeightBytes + kTokens * kRowBytes + kNormBytes;
  static constexpr int kRowsAtOnce = 32 / kPieces;

 public:
  static constexpr int kMTiles = (kTokens + kFeatures - 1) / kFeatures;  // tiles of eight tokens
  static constexpr int kStageStride = kSkinnyWarps * kStageBytes;        // distance between stages of a warp
  // Twelve stages saturate memory; more would delay the first mma.
  static constexpr int kStages = kPipelineBytes / kStageStride < 12 ? kPipelineBytes / kStageStride : 12;
  // A CTA that needs fewer stages leaves the shared memory to the CTAs of the next kernel.
  static constexpr __host__ __device__ int shared_bytes(int k_blocks_per_warp) {
    return kStageStride * (k_blocks_per_warp < kStages ? k_blocks_per_warp : kStages);
  }
  static_assert(kStages >= 2);

  // A lane's fragments of one or both halves of a K-block in the layout of mma.m16n8k16: elements 2 (l % 4)
  // and 2 (l % 4) + 1 of pieces 0 to 3 (first half) or 4 to 7 of row l / 4 of each group, and of rows l / 4,
  // l / 4 + 8, ... of x.
  template <int kHalves>
  struct Fragments {
    uint4 weights[kHalves][kGroups];
    uint4 x[kHalves][kMTiles];
    uint4 norm[kHalves];
  };

  __device__ SkinnyGemmPipeline(const SkinnyGemmParams& params, const CtaRange& range, char* shared)
      : params_(params), range_(range) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    row_ = lane / kPieces;
    input_ = warp * kBlockK + lane % kPieces * 8;
    const uint32_t stages = ptx::shared_address(shared) + static_cast<uint32_t>(warp * kStageBytes);
    to_ = stages + swizzled_piece(row_, lane % kPieces);
    from_ = stages + swizzled_piece(lane % 8, lane / 8);
    norm_from_ = stages + swizzled_piece(0, lane / 8);
    x_from_ = kTokens == 1 ? norm_from_ : from_;
    norm_to_ = stages + kWeightBytes + kTokens * kRowBytes;
    k_blocks_per_pass_ = (range.num_k_blocks - warp + kSkinnyWarps - 1) / kSkinnyWarps;
    const int64_t row_bytes = 2 * int64_t{params.in_features};
    group_pair_bytes_ = 2 / groups_per_n_tile(params) * kFeatures * row_bytes;
    odd_group_bytes_ = (kHeads         ? params.head_half
                        : params.gated ? params.out_features
                                       : kFeatures) *
                       row_bytes;
  }

  // Prologue. Fills every stage with W and norm weights and, after the previous kernel has finished, with x.
  // Loads return in issue order, so x waits for at most half of all of W.
  __device__ __forceinline__ void start() {
    begin(weights_cursor_);
    const int num_prefetched = min(kStages, (weights_cursor_.left + 1) / 2);
#pragma unroll 1
    for (int stage = 0; stage < num_prefetched; ++stage) {
      copy_norm(weights_cursor_, stage * kStageStride);
      copy_weights(weights_cursor_, stage * kStageStride);
      advance(weights_cursor_);
    }
    ptx::griddepcontrol_wait();
    Cursor cursor;
    begin(cursor);
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      if (cursor.left > 0) {
        copy_x(cursor, stage * kStageStride);
        if (stage >= num_prefetched) {
          copy_norm(cursor, stage * kStageStride);
          copy_weights(cursor, stage * kStageStride);
        }
        advance(cursor);
      }
      ptx::cp_async_commit_group();
    }
    weights_cursor_ = cursor;
    ptx::launch_dependents();
  }

  // Waits until the oldest stage is full.
  __device__ __forceinline__ void wait() {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncwarp();
  }
  // Loads fragments of the oldest stage, starting with half `first`.
  template <int kHalves>
  __device__ __forceinline__ void load(int first, Fragments<kHalves>& fragments) const {
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      const uint32_t half = 64 * static_cast<uint32_t>(first + i);
#pragma unroll
      for (int tile = 0; tile < kMTiles; ++tile)
        fragments.x[i][tile] = load((x_from_ ^ half) + stage_ + kWeightBytes + tile * kFeatures * kRowBytes);
      if (params_.norm != nullptr && params_.norm_element == Element::kBF16)
        fragments.norm[i] = load((norm_from_ ^ half) + stage_ + kWeightBytes + kTokens * kRowBytes);
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        fragments.weights[i][group] = load((from_ ^ half) + stage_ + group * kFeatures * kRowBytes);
    }
  }
  // Loads float32 norm weights of half `half` of the oldest stage, for the elements of a fragment of x.
  __device__ __forceinline__ void load_f32_norm(int half, float2 (&norm)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t from = norm_to_ + stage_ + static_cast<uint32_t>(half * kRowBytes + lane % 4 * 8);
#pragma unroll
    for (int piece = 0; piece < 4; ++piece)
      norm[piece] = ptx::ld_shared_8(from + static_cast<uint32_t>(piece * 32));
  }
  // Refills the oldest stage after all of it was loaded to registers.
  __device__ __forceinline__ void refill() {
    __syncwarp();
    if (weights_cursor_.left > 0) {
      copy_weights(weights_cursor_, stage_);
      copy_x(weights_cursor_, stage_);
      copy_norm(weights_cursor_, stage_);
      advance(weights_cursor_);
    }
    ptx::cp_async_commit_group();
    stage_ = stage_ + kStageStride == kStages * kStageStride ? 0 : stage_ + kStageStride;
  }

 private:
  // Position of the next copy.
  struct Cursor {
    const char* weights;  // this lane's address in the first group
    int n_tile, input;    // `input`: this lane's first input
    int left_in_pass, left;
  };

  // Returns the address kRowsAtOnce rows after `to`.
  __device__ static uint32_t next_rows(uint32_t to) {
    return (to ^ (kRowsAtOnce * 16)) + kRowsAtOnce * kRowBytes;
  }

  __device__ __forceinline__ static uint4 load(uint32_t from) {
    uint32_t pieces[4];
    ptx::ldmatrix_x4(pieces, from);
    return make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
  }

  __device__ __forceinline__ void begin(Cursor& cursor) const {
    cursor.n_tile = range_.begin;
    cursor.left = k_blocks_per_pass_ * ((range_.end - range_.begin + range_.at_once - 1) / range_.at_once);
    begin_pass(cursor);
  }
  __device__ __forceinline__ void begin_pass(Cursor& cursor) const {
    cursor.input = input_;
    cursor.left_in_pass = k_blocks_per_pass_;
    const int64_t row = first_feature(params_, cursor.n_tile) + row_;
    cursor.weights = static_cast<const char*>(params_.weight) + 2 * (row * params_.in_features + input_);
  }
  __device__ __forceinline__ void advance(Cursor& cursor) const {
    cursor.input += kSkinnyWarps * kBlockK;
    cursor.weights += 2 * kSkinnyWarps * kBlockK;
    --cursor.left;
    if (--cursor.left_in_pass > 0) return;
    cursor.n_tile += range_.at_once;
    begin_pass(cursor);
  }

  __device__ __forceinline__ void copy_weights(const Cursor& cursor, int stage) const {
    const int num_groups = (range_.end - cursor.n_tile) * groups_per_n_tile(params_);
    const bool valid = cursor.input < params_.in_features;
    const int64_t next_rows_bytes = 2 * kRowsAtOnce * int64_t{params_.in_features};
    const char* from[2] = {cursor.weights, cursor.weights + odd_group_bytes_};
    uint32_t to = to_ + stage;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group >= num_groups) break;
      const char*& rows = from[group % 2];
      ptx::cp_async_16(to, rows, valid);
      ptx::cp_async_16(next_rows(to), rows + next_rows_bytes, valid);
      rows += group_pair_bytes_;
      // After a head's first half, the next n-tile is the next head's.
      if constexpr (kHeads)
        if (((cursor.n_tile + group / 2 + 1) & (params_.head_half / kFeatures - 1)) == 0)
          rows += odd_group_bytes_;
      to += kFeatures * kRowBytes;
    }
  }
  __device__ __forceinline__ void copy_x(const Cursor& cursor, int stage) const {
    const bool valid = cursor.input < params_.in_features;
    const char* const x = static_cast<const char*>(params_.x) + 2 * int64_t{cursor.input};
    const uint32_t to = to_ + stage + kWeightBytes;
    if constexpr (kTokens == 1) {
      if (row_ == 0) ptx::cp_async_16(to, x, valid);
    } else {
#pragma unroll
      for (int row = 0; row < kTokens; row += kRowsAtOnce) {
        const int token = row + row_;
        const bool given = valid && token < params_.num_rows;
        const uint32_t to_row =
            row % 8 == 0 ? to + row * kRowBytes : next_rows(to + (row - kRowsAtOnce) * kRowBytes);
        ptx::cp_async_16(to_row, x + (given ? 2 * token * params_.x_stride : 0), given);
      }
    }
  }
  __device__ __forceinline__ void copy_norm(const Cursor& cursor, int stage) const {
    if (params_.norm == nullptr || row_ != 0) return;
    const bool valid = cursor.input < params_.in_features;
    const auto* const norm = static_cast<const char*>(params_.norm);
    if (params_.norm_element == Element::kBF16)
      return ptx::cp_async_16(to_ + stage + kWeightBytes + kTokens * kRowBytes,
                              norm + 2 * int64_t{cursor.input}, valid);
    // Eight inputs are two pieces. All lanes of a warp read the same few banks, so the row is not swizzled.
    const uint32_t to = norm_to_ + stage + static_cast<uint32_t>(threadIdx.x % kPieces * 32);
    ptx::cp_async_16(to, norm + 4 * int64_t{cursor.input}, valid);
    ptx::cp_async_16(to + 16, norm + 4 * int64_t{cursor.input} + (valid ? 16 : 0), valid);
  }

  const SkinnyGemmParams& params_;
  const CtaRange range_;
  int row_, input_;  // rows that this lane copies of each kRowsAtOnce rows, and its first input in the first
                     // K-block
  uint32_t to_;
  uint32_t from_, x_from_, norm_from_;  // addresses of the first halves
  uint32_t norm_to_;                    // first byte of the norm weights
  int k_blocks_per_pass_;
  int64_t group_pair_bytes_, odd_group_bytes_;  // stride between group pairs, and between the groups of a
                                                // pair
  int stage_ = 0;                               // offset of the oldest K-block
  Cursor weights_cursor_;
};

// Consumer. `Epilogue`: see SkinnyOutputs.
template <class T, int kGroups, int kTokens, int kSharedBytes, class Epilogue>
class SkinnyGemmCta : SkinnyOutputs<kGroups, kTokens, Epilogue> {
  using Outputs = SkinnyOutputs<kGroups, kTokens, Epilogue>;
  using Outputs::kGroupOutputs, Outputs::kPartialSumBytes;
  using Outputs::params_, Outputs::range_, Outputs::partial_, Outputs::row_squares_, Outputs::warp_,
      Outputs::lane_;
  using Pipeline = SkinnyGemmPipeline<kGroups, kTokens, kSharedBytes - kPartialSumBytes, Epilogue::kHeads>;
  static constexpr int kMTiles = Pipeline::kMTiles;
  static constexpr int kM16Tiles = (kMTiles + 1) / 2;  // rows of operand A of one mma
  static constexpr bool kCanNorm = std::is_same_v<T, __nv_bfloat16>;

 public:
  static constexpr int kMaxSharedBytes = kPartialSumBytes + Pipeline::shared_bytes(Pipeline::kStages);
  static int shared_bytes(int k_blocks_per_warp) {
    return kPartialSumBytes + Pipeline::shared_bytes(k_blocks_per_warp);
  }

  __device__ SkinnyGemmCta(const SkinnyGemmParams& params, const Epilogue& epilogue, char* shared)
      : Outputs(params, epilogue, shared, kBlockK), pipeline_(params, range_, shared + kPartialSumBytes) {}

  // W does not depend on the previous kernel, so the pipeline fills while that kernel finishes.
  __device__ __forceinline__ void run() {
    pipeline_.start();
    bool first = true;
    for (int n_tile = range_.begin; n_tile < range_.end; n_tile += range_.at_once) {
      typename Outputs::Prefetched prefetched;
      this->prefetch(n_tile, prefetched);
      Accumulators accumulators = {};
      for (int k_block = warp_; k_block < range_.num_k_blocks; k_block += kSkinnyWarps)
        multiply(first, accumulators);
      store_partial_sums(first, accumulators);
      __syncthreads();
      this->write(n_tile, prefetched, [&](int token) { return this->get_norm_scale(token); });
      __syncthreads();
      first = false;
    }
  }

 private:
  // Halves of a K-block with fragments in registers at the same time: one if there are many groups.
  static constexpr int kHalves = kGroups > 6 ? 1 : 2;
  using Fragments = typename Pipeline::template Fragments<kHalves>;
  // With a single token, W is operand A: 16 of its rows are then multiplied by one mma, not 8.
  static constexpr bool kWeightsLeft = kTokens == 1 && kGroups > 1;
  using Accumulators = float[kWeightsLeft ? kGroups / 2 : kGroups][kM16Tiles][4];

  // Multiplies K-blocks in order, one mma.m16n8k16 after another.
  __device__ __forceinline__ void multiply(bool first, Accumulators& accumulators) {
    pipeline_.wait();
#pragma unroll
    for (int half = 0; half < 2; half += kHalves) {
      Fragments fragments;
      pipeline_.load(half, fragments);
      // Reads the stage, which refill() overwrites.
      if constexpr (kCanNorm)
        if (params_.norm != nullptr && params_.norm_element == Element::kF32)
          apply_f32_norm(first, half, fragments);
      if (half + kHalves == 2) pipeline_.refill();
      if constexpr (kCanNorm)
        if (params_.norm != nullptr && params_.norm_element == Element::kBF16) apply_norm(first, fragments);
#pragma unroll
      for (int i = 0; i < kHalves; ++i) {
        if constexpr (kWeightsLeft)
          multiply_left(fragments.weights[i], fragments.x[i][0], accumulators);
        else
          multiply_right(fragments.weights[i], fragments.x[i], accumulators);
      }
    }
  }

  __device__ __forceinline__ static void multiply_left(const uint4 (&weights)[kGroups], const uint4& x,
                                                       Accumulators& accumulators) {
#pragma unroll
    for (int group = 0; group < kGroups; group += 2) {
      const uint4 low = weights[group], high = weights[group + 1];
      const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
      ptx::mma_m16n8k16(accumulators[group / 2][0], even, x.x, x.y, T{});
      ptx::mma_m16n8k16(accumulators[group / 2][0], odd, x.z, x.w, T{});
    }
  }
  __device__ __forceinline__ static void multiply_right(const uint4 (&weights)[kGroups],
                                                        const uint4 (&x)[kMTiles],
                                                        Accumulators& accumulators) {
#pragma unroll
    for (int pair = 0; pair < kM16Tiles; ++pair) {
      const uint4 low = x[2 * pair];
      uint4 high = make_uint4(0, 0, 0, 0);
      if constexpr (kMTiles > 1) high = x[2 * pair + 1];
      const uint32_t even[4] = {low.x, high.x, low.y, high.y}, odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        ptx::mma_m16n8k16(accumulators[group][pair], even, weights[group].x, weights[group].y, T{});
        ptx::mma_m16n8k16(accumulators[group][pair], odd, weights[group].z, weights[group].w, T{});
      }
    }
  }

  // Squares of x are equal in every pass, so only the first pass sums them.
  __device__ __forceinline__ void apply_norm(bool first, Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < kHalves; ++i)
#pragma unroll
      for (int tile = 0; tile < kMTiles; ++tile) {
        if (first) sum_of_squares_[tile] += sum_of_squares8(fragments.x[i][tile]);
        fragments.x[i][tile] = multiply_elements(fragments.x[i][tile], fragments.norm[i]);
      }
  }

  __device__ __forceinline__ void apply_f32_norm(bool first, int first_half, Fragments& fragments) {
#pragma unroll
    for (int i = 0; i < kHalves; ++i) {
      float2 norm[4];
      pipeline_.load_f32_norm(first_half + i, norm);
#pragma unroll
      for (int tile = 0; tile < kMTiles; ++tile) {
        if (first) sum_of_squares_[tile] += sum_of_squares8(fragments.x[i][tile]);
        fragments.x[i][tile] = multiply_elements(fragments.x[i][tile], norm);
      }
    }
  }

  // Sliced-K: stores a warp's accumulators to shared memory. Lane l holds tokens l / 4, l / 4 + 8, ... of
  // features 2 (l % 4) and 2 (l % 4) + 1; with a single token, feature l / 4 of two groups.
  __device__ __forceinline__ void store_partial_sums(bool first, const Accumulators& accumulators) {
    if constexpr (kWeightsLeft) {
      if (lane_ % 4 == 0)
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
          partial_[(warp_ * kGroups + group) * kFeatures + lane_ / 4] =
              accumulators[group / 2][0][group % 2 * 2];
    }
#pragma unroll
    for (int tile = 0; tile < kMTiles; ++tile) {
      const int token = lane_ / 4 + tile * kFeatures;
      if (token >= kTokens) break;
      if constexpr (!kWeightsLeft)
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
          *reinterpret_cast<float2*>(partial_ + (warp_ * kGroups + group) * kGroupOutputs +
                                     token * kFeatures + lane_ % 4 * 2) =
              make_float2(accumulators[group][tile / 2][tile % 2 * 2],
                          accumulators[group][tile / 2][tile % 2 * 2 + 1]);
      if (params_.norm == nullptr || !first) continue;
      float squares = sum_of_squares_[tile];
      for (int step = 1; step < 4; step *= 2) squares += __shfl_xor_sync(__activemask(), squares, step);
      if (lane_ % 4 == 0) row_squares_[warp_ * kTokens + token] = squares;
    }
  }

  Pipeline pipeline_;
  float sum_of_squares_[kMTiles] = {};
};

// CTAs per SM for which there are enough registers.
constexpr int skinny_ctas_per_sm(int num_groups, int num_tokens) {
  return num_groups > 4 || num_groups * num_tokens > 6 * kFeatures ? 1 : 2;
}

template <class T, int kGroups, int kTokens, int kSharedBytes>
__global__ void __launch_bounds__(kSkinnyThreads, skinny_ctas_per_sm(kGroups, kTokens))
    skinny_gemm_kernel(const __grid_constant__ SkinnyGemmParams params) {
  extern __shared__ __align__(128) char shared[];
  SkinnyGemmCta<T, kGroups, kTokens, kSharedBytes, SkinnyGemmEpilogue>(params, SkinnyGemmEpilogue(params),
                                                                       shared)
      .run();
}

// Launches `kKernel`. Its CTAs have class `Cta` and compute kGroups groups per pass. `params` contains
// `product`.
template <class Cta, int kGroups, auto kKernel, class Params>
void launch_ctas(const Params& params, const SkinnyGemmParams& product, const CtaRanges& ranges, void* stream,
                 int cluster_size = 1) {
  constexpr int kRoundElements = kSkinnyWarps * kBlockK;
  const int k_blocks_per_warp =
      (product.in_features + kRoundElements - 1) / kRoundElements * ranges.num_passes(kGroups);
  const int shared_bytes = Cta::shared_bytes(k_blocks_per_warp);
  allow_shared_memory<kKernel>(Cta::kMaxSharedBytes, "linear: shared memory");
  launch_dependent<Params>(kKernel, static_cast<unsigned>(ranges.num_ctas), kSkinnyThreads,
                           static_cast<size_t>(shared_bytes), stream, params, "linear", cluster_size);
}

template <class T, int kGroups, int kTokens, int kSharedBytes>
void launch_instance(const SkinnyGemmParams& params, const CtaRanges& ranges, void* stream) {
  using Cta = SkinnyGemmCta<T, kGroups, kTokens, kSharedBytes, SkinnyGemmEpilogue>;
  launch_ctas<Cta, kGroups, skinny_gemm_kernel<T, kGroups, kTokens, kSharedBytes>>(params, params, ranges,
                                                                                   stream);
}

template <class T, int kTokens>
void launch_tokens(const SkinnyGemmParams& params, void* stream) {
  const CtaRanges ranges(params);
  // Minimizes the number of passes over x. Then minimizes the groups per pass, since more stages fit then.
  const auto min_passes = [&](int groups, int most) {
    return ranges.num_passes(groups) == ranges.num_passes(most);
  };
  constexpr int kLarge = kLargeSharedBytes, kSmall = kSmallSharedBytes;
  if constexpr (kTokens <= kMaxRowsAnywhere) {
    if (max_skinny_rows() == kMaxRowsAnywhere) {
      if (min_passes(1, 2)) return launch_instance<T, 1, kTokens, kSmall>(params, ranges, stream);
      return launch_instance<T, 2, kTokens, kSmall>(params, ranges, stream);
    }
  }
  if (min_passes(1, 6)) return launch_instance<T, 1, kTokens, kLarge>(params, ranges, stream);
  if (min_passes(2, 6)) return launch_instance<T, 2, kTokens, kLarge>(params, ranges, stream);
  if (min_passes(4, 6)) return launch_instance<T, 4, kTokens, kLarge>(params, ranges, stream);
  launch_instance<T, 6, kTokens, kLarge>(params, ranges, stream);
}

template <class T>
void launch_skinny_gemm(const SkinnyGemmParams& params, void* stream) {
  if (params.num_rows == 1)
    launch_tokens<T, 1>(params, stream);
  else if (params.num_rows <= 8)
    launch_tokens<T, 8>(params, stream);
  else if (params.num_rows <= kMaxRowsAnywhere)
    launch_tokens<T, kMaxRowsAnywhere>(params, stream);
  else
    launch_tokens<T, kMaxRowsWithRoom>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
