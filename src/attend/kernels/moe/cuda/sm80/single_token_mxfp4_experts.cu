// Second product of the experts of a single token in mxfp4: bound by reading their weights, and by the
// latency before and after that.
//
//   tile        8 outputs of two experts, the 16 rows of operand A of mma.m16n8k16
//   work        one CTA per SM, with an even share of all tiles and all experts of its outputs; it writes
//               their sum
//   warps       24, all alike: each has its strips of K of two experts for every tile, so it needs only its
//               part of x. It loads W from memory into registers, kDepth strips ahead, and waits for no other
//               warp before the final sums
//   registers   80 at most
//   shared      x of each warp, in the order in which lanes read it; sums of each strip's warp
//   bytes       W once; x once per CTA, from L2
//   bound       reading W
//
// All experts of the token are distinct, and available before the first product starts: nothing is sorted,
// and W is loaded while the first product finishes.
//
// A lane has 16 bytes of each 128 inputs of a row of W. x has the layout of SingleTokenMxFp4Rows
// (single_token_experts.cuh): a lane's sums are those of its own rows and inputs, and columns 2 j and 2 j + 1
// have the x of two experts.
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/element.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/global_memory.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/common/late_bias.cuh"
#include "attend/kernels/moe/cuda/sm80/mxfp4_sums.cuh"
#include "attend/kernels/moe/cuda/sm80/single_token_experts.cuh"
#include "attend/kernels/moe/cuda/sm80/single_token_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

class SingleTokenDownCta {
 public:
  static constexpr int kWarps = kSingleTokenDownWarps, kThreads = 32 * kWarps;
  static constexpr int kPieceInputs = 8, kPieceBytes = 16;  // inputs and bytes of x
  static constexpr int kStripBytes = kSingleTokenStripInputs * 2,
                       kPiecesPerStrip = kSingleTokenStripInputs / kPieceInputs;
  static constexpr int kXRowsPerWarp = 2;  // one for each of the warp's two experts
  static constexpr int kSumsPerTile = kSingleTokenSumsPerTile;

 private:
  using T = __nv_bfloat16;
  static constexpr int kDepth = 2, kGroup = 32, kGroups = 2;  // kGroup: inputs per scale; kGroups: groups per
                                                              // strip and lane

  // A lane's part of its two rows for one strip.
  struct Strip {
    uint4 low[kGroups], high[kGroups];
    uint32_t low_exponents, high_exponents;  // kGroups bytes
  };

 public:
  __device__ SingleTokenDownCta(const SingleTokenDownParams& params, char* shared, int* experts)
      : params_(params.product),
        share_(params.share),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        slice_(warp_ % share_.num_slices),
        part_(warp_ / share_.num_slices),
        working_(part_ < share_.num_parts),
        begin_(static_cast<int>(static_cast<uint32_t>(share_.num_tiles) * blockIdx.x / gridDim.x)),
        end_(static_cast<int>(static_cast<uint32_t>(share_.num_tiles) * (blockIdx.x + 1) / gridDim.x)),
        zeros_(ptx::shared_address(shared)),
        x_(zeros_ + kStripBytes * (1 + warp_ * share_.strips_per_warp * kXRowsPerWarp)),
        sums_(reinterpret_cast<float*>(shared +
                                       kStripBytes * (1 + kWarps * share_.strips_per_warp * kXRowsPerWarp))),
        experts_(experts) {}

  __device__ __forceinline__ void run() {
    uint4 x[kXRowsPerWarp];
    // Loaded by one warp only: thousands of loads of the same bytes would serialize. The experts were written
    // by a kernel that the first product waited for.
    if (warp_ == 0 && lane_ < params_.top_k) experts_[lane_] = params_.experts[lane_];
    __syncthreads();
    next_.tile = begin_;
    next_.strip = slice_;
    if (!working_) next_.tile = end_;
    begin_tile();
    Strip strips[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) load_next_strip(strips[i]);
    prefetch();
    ptx::griddepcontrol_wait();
    ptx::launch_dependents();
    prefetch_x(x);
    store_x(x);
    multiply(strips);
    const Prefetched prefetched = load_prefetched();
    __syncthreads();
    write(prefetched);
  }

 private:
  // Parameters of a grouped GEMM that the epilogue reads.
  __device__ __forceinline__ GroupedGemmParams layout() const {
    GroupedGemmParams layout;
    layout.gated = layout.alternating = false;
    layout.out_features = params_.out_features;
    layout.epilogue = params_.epilogue;
    return layout;
  }
  // The two experts of this warp in the second product. If top_k is odd, the last one is duplicated.
  __device__ __forceinline__ int low_pair() const { return 2 * part_; }
  __device__ __forceinline__ int high_pair() const { return min(2 * part_ + 1, params_.top_k - 1); }

  // Sets the rows of W of the next tile.
  __device__ __forceinline__ void begin_tile() {
    if (next_.tile >= end_) return;
    const int output = next_.tile * kSingleTokenTileOutputs + lane_ / 4;
    next_.low = experts_[low_pair()] * params_.out_features + output;
    next_.high = experts_[high_pair()] * params_.out_features + output;
  }
  // Loads the next strip, if there is one. Past the last input, where x is zero, loads the first inputs
  // again.
  __device__ __forceinline__ void load_next_strip(Strip& strip) {
    if (next_.tile >= end_) return;
    const int first = next_.strip * (kSingleTokenStripInputs / kGroup),
              columns = params_.weight.scale_columns;
    const int row_bytes = params_.in_features / 2;
    const uint8_t* const low =
        static_cast<const uint8_t*>(params_.weight.data) + int64_t{next_.low} * row_bytes;
    const uint8_t* const high =
        static_cast<const uint8_t*>(params_.weight.data) + int64_t{next_.high} * row_bytes;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int group = first + i * 4 + lane_ % 4;
      const uint32_t at = group < columns ? group * (kGroup / 2) : 0;
      strip.low[i] = __ldg(reinterpret_cast<const uint4*>(low + at));
      strip.high[i] = __ldg(reinterpret_cast<const uint4*>(high + at));
    }
    const auto* const scales = static_cast<const uint8_t*>(params_.weight.scales);
    const uint32_t two = first + lane_ % 4 * 2, at = two < columns ? two : 0;
    strip.low_exponents =
        __ldg(reinterpret_cast<const uint16_t*>(scales + int64_t{next_.low} * columns + at));
    strip.high_exponents =
        __ldg(reinterpret_cast<const uint16_t*>(scales + int64_t{next_.high} * columns + at));
    next_.strip += share_.num_slices;
    if (next_.strip < share_.num_strips) return;
    next_.strip = slice_;
    ++next_.tile;
    begin_tile();
  }

  __device__ __forceinline__ void multiply(Strip (&strips)[kDepth]) {
    // Lane l's column is l / 4.
    const int column = lane_ / 4;
    const bool has_x = column / 2 == lane_ % 4;
    const uint32_t first_x =
        (has_x ? x_ + column % 2 * share_.strips_per_warp * kStripBytes : zeros_) + lane_ % 4 * kPieceBytes;
    const uint32_t to_next = has_x ? kStripBytes : 0;
    const int num_strips = (share_.num_strips - slice_ + share_.num_slices - 1) / share_.num_slices;
    int tile = working_ ? begin_ : end_, left = num_strips;
    uint32_t x = first_x;
    float low = 0.0f, high = 0.0f;
    float* sums = sums_address(tile, part_) + slice_ * kSumsPerTile + lane_;
    const int to_next_sums = share_.num_slices * share_.num_parts * kSumsPerTile;
    while (tile < end_) {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (tile >= end_) break;
        multiply(strips[i], x, low, high);
        load_next_strip(strips[i]);
        x += to_next;
        if (--left > 0) continue;
        sums[0] = low;
        sums[32] = high;
        sums += to_next_sums;
        low = high = 0.0f;
        left = num_strips;
        x = first_x;
        ++tile;
      }
    }
  }

  __device__ __forceinline__ static void multiply(const Strip& strip, uint32_t x, float& low, float& high) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      float products[4] = {};
      MxFp4Sums::add_group(strip.low[i], strip.high[i], x + i * 16 * kPieceBytes, products);
      low = fmaf(products[0], to_scale(strip.low_exponents, i), low);
      high = fmaf(products[3], to_scale(strip.high_exponents, i), high);
    }
  }
  // Returns 2^(e - 127) of group 4 i + l % 4 of eight groups, of which each of four lanes has two. It is
  // subnormal for e = 0.
  __device__ __forceinline__ static float to_scale(uint32_t exponents, int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t two = __shfl_sync(0xffffffffu, exponents, lane / 4 * 4 + 2 * i + lane % 4 / 2);
    return MxFp4Sums::to_scale(lane % 2 == 0 ? two & 0xffu : two >> 8);
  }

  // Returns the sums of the slices of a tile for two experts.
  __device__ __forceinline__ float* sums_address(int tile, int two) const {
    return sums_ + ((tile - begin_) * share_.num_parts + two) * share_.num_slices * kSumsPerTile;
  }
  __device__ __forceinline__ float sum_at(int tile, int two, int row) const {
    const uint32_t from = ptx::shared_address(sums_address(tile, two) + row * 4);
    float sum = 0.0f;
#pragma unroll 4
    for (int slice = 0; slice < share_.num_slices; ++slice) {
      const uint4 of = ptx::ld_shared_16(from + slice * kSumsPerTile * static_cast<int>(sizeof(float)));
      sum +=
          (__uint_as_float(of.x) + __uint_as_float(of.y)) + (__uint_as_float(of.z) + __uint_as_float(of.w));
    }
    return sum * MxFp4Sums::kFromSums;
  }

  // Loads lane l's eight inputs of a row for strip i of this warp; zeros past the last input.
  __device__ __forceinline__ uint4 x_piece_at(int i, int row) const {
    const int input = (slice_ + i * share_.num_slices) * kSingleTokenStripInputs + lane_ * kPieceInputs;
    const int pair = row == 0 ? low_pair() : high_pair();
    if (!working_ || input >= params_.in_features) return {};
    return *reinterpret_cast<const uint4*>(static_cast<const T*>(params_.x) + pair * params_.in_features +
                                           input);
  }
  __device__ __forceinline__ void prefetch_x(uint4 (&x)[kXRowsPerWarp]) const {
#pragma unroll
    for (int row = 0; row < kXRowsPerWarp; ++row) x[row] = x_piece_at(0, row);
  }
  // Stores x in shared memory. `x`: pieces of the first strip.
  __device__ __forceinline__ void store_x(const uint4 (&x)[kXRowsPerWarp]) const {
    ptx::st_shared_16(zeros_ + lane_ * kPieceBytes, uint4{});
#pragma unroll
    for (int row = 0; row < kXRowsPerWarp; ++row) {
      store_x_piece(0, row, x[row]);
      for (int i = 1; i < share_.strips_per_warp; ++i) store_x_piece(i, row, x_piece_at(i, row));
    }
    __syncwarp();
  }
  // The four lanes' pieces for one word of quantized values are adjacent. Inputs j and j + 4 of a piece are
  // pairs, like the values of a word: the first product writes them in this order.
  __device__ __forceinline__ void store_x_piece(int i, int row, uint4 x) const {
    static_assert(kPiecesPerStrip == 32);
    x = MxFp4Sums::raised(x);
    ptx::st_shared_16(x_ + (row * share_.strips_per_warp + i) * kStripBytes +
                          (lane_ / 16 * 16 + lane_ % 4 * 4 + lane_ / 4 % 4) * kPieceBytes,
                      x);
  }

  // One output of one expert.
  struct Item {
    int pair, tile, own, expert, output;
  };
  __device__ __forceinline__ int num_outputs() const { return (end_ - begin_) * kSingleTokenTileOutputs; }
  __device__ __forceinline__ int num_items() const { return num_outputs() * params_.top_k; }
  __device__ __forceinline__ Item item_at(int item) const {
    const int in_cta = item % max(num_outputs(), 1);
    Item of{.pair = 0,
            .tile = begin_ + in_cta / kSingleTokenTileOutputs,
            .own = in_cta % kSingleTokenTileOutputs};
    of.pair = item / max(num_outputs(), 1);
    of.output = of.tile * kSingleTokenTileOutputs + of.own;
    of.expert = experts_[min(of.pair, params_.top_k - 1)];
    return of;
  }

  // Bias and weight of this thread's first output. They are prefetched to L2, then loaded before the last
  // warp has its sums.
  struct Prefetched {
    LateBias bias;
    float weight = 1.0f;
  };
  __device__ __forceinline__ void prefetch() const {
    const DeviceVector& bias = params_.epilogue.bias;
    const int item = static_cast<int>(threadIdx.x);
    const Item of = item_at(item);
    if (item < num_items() && bias.data != nullptr)
      LateBias::prefetch(bias, expert_weight_row(layout(), of.expert, 0, of.output));
  }
  __device__ __forceinline__ Prefetched load_prefetched() const {
    Prefetched prefetched;
    const int item = static_cast<int>(threadIdx.x);
    const Item of = item_at(item);
    if (item >= num_items()) return prefetched;
    prefetched.bias.ask(params_.epilogue.bias, expert_weight_row(layout(), of.expert, 0, of.output));
    if (params_.weights != nullptr) prefetched.weight = __ldg(params_.weights + of.pair);
    return prefetched;
  }
  __device__ __forceinline__ float compute_output(const Item& of, float sum, const Prefetched& prefetched,
                                                  bool is_first) const {
    if (!is_first) return expert_output(layout(), of.expert, of.pair, of.output, sum, 0.0f);
    return expert_output(layout(), of.pair, sum, 0.0f, [&](float& total, float&) {
      total += prefetched.bias.number(params_.epilogue.bias);
    });
  }

  __device__ __forceinline__ void write(const Prefetched& prefetched) const {
    for (int first = 0; first < num_items(); first += kThreads) {
      const int item = first + static_cast<int>(threadIdx.x);
      const Item of = item_at(item);
      if (item >= num_items()) continue;
      const int row = of.pair % 2 * kSingleTokenTileOutputs + of.own;
      float value = compute_output(of, sum_at(of.tile, of.pair / 2, row), prefetched, first == 0);
      if (params_.weights != nullptr) value *= first == 0 ? prefetched.weight : params_.weights[of.pair];
      // Overwrites the first slice's sum, which no other thread reads.
      sums_address(of.tile, of.pair / 2)[row * 4] = value;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < num_outputs(); i += kThreads) {
      T* const out = static_cast<T*>(params_.out) + begin_ * kSingleTokenTileOutputs + i;
      float total = params_.accumulate ? float(*out) : 0.0f;
      for (int pair = 0; pair < params_.top_k; ++pair)
        total +=
            sums_address(begin_ + i / kSingleTokenTileOutputs,
                         pair / 2)[(pair % 2 * kSingleTokenTileOutputs + i % kSingleTokenTileOutputs) * 4];
      *out = T(total);
    }
  }

  const SkinnyExpertsParams& params_;
  const SingleTokenShare& share_;
  const int warp_, lane_;
  const int slice_, part_;
  const bool working_;
  const int begin_, end_;  // range of tiles
  const uint32_t zeros_, x_;
  float* const sums_;
  int* const experts_;  // experts of the token
  struct {
    int tile, strip;
    int low, high;  // rows of W of the tile
  } next_{};
};

__global__ void __launch_bounds__(SingleTokenDownCta::kThreads, 1)
    single_token_down_kernel(const __grid_constant__ SingleTokenDownParams params) {
  extern __shared__ __align__(16) char shared[];
  __shared__ int experts[kMaxSingleTokenTopK];
  SingleTokenDownCta(params, shared, experts).run();
}

inline void launch_single_token_down(const SkinnyExpertsParams& params, void* stream) {
  allow_shared_memory<single_token_down_kernel>(kMaxSingleTokenDownBytes, "moe_experts: shared memory");
  const SingleTokenShare share =
      single_token_share(params.top_k, params.in_features, params.out_features, num_sms());
  launch_dependent<SingleTokenDownParams>(
      single_token_down_kernel, dim3(static_cast<unsigned>(share.num_ctas)), SingleTokenDownCta::kThreads,
      static_cast<size_t>(share.shared_bytes), stream, {.product = params, .share = share}, "moe_experts");
}

void launch_single_token_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  if (!params.gated) return launch_single_token_down(params, stream);
  launch_single_token_product<__nv_bfloat16, SingleTokenMxFp4Rows<3>, false>(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
