// Grouped GEMM for many rows in mxfp4 on sm_90a: W x^T of each expert for its rows, with wgmma. W is loaded
// from memory into registers, dequantized there, and is operand A; rows of x, sorted by expert, are loaded
// with TMA. Persistent CTAs.
//
//   tile        128 rows of W (gated: gate and up of 64 outputs) x up to 256 rows of an expert, K-blocks of
//               64 inputs
//   warps       2 consumer warpgroups multiply 64 rows of W each (A = W, B = x: wgmma m64n64k16, n128 or
//               n256), and dequantize a K-block while the previous one is multiplied; in a producer
//               warpgroup, one thread loads x
//   registers   240 per consumer thread, 24 per producer thread (setmaxnreg), launched with 168
//   shared      5 stages of 32 KB of x, mbarriers, 8 KB of outputs per warpgroup, first rows and tiles of the
//               experts. The rest is L1, which loads of quantized values and scales need
//   bytes       per K-block: 32 KB of x, 4 KB of quantized values
//   bound       tensor cores; with few rows per expert dequantization
//
// Inputs of x are in the order in which lanes read quantized values: of each 64 inputs a lane has 16
// neighboring ones of its two rows of W, which share a scale. In the bits of an input's index, t (5, 4)
// selects the lane, w (3) the word of its values, and e, h, q (2, 1, 0) the value in the word. Its position
// in x has the bits w h q t t e.
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/mbarrier.cuh"
#include "attend/kernels/common/cuda/ptx/mma.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/common/cuda/sm90/pipeline_state.cuh"
#include "attend/kernels/gemm/cuda/common/dequantize.cuh"
#include "attend/kernels/gemm/cuda/common/k_block_order.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/common/late_bias.cuh"
#include "attend/kernels/moe/cuda/sm90/expert_tiles_kernel.h"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_wide_products.cuh"

namespace attend::kernels::cuda::sm90 {

struct MxFp4TilesConfig {
  static constexpr int kWarpgroups = 2, kConsumerWarps = 4 * kWarpgroups, kThreads = 128 * (kWarpgroups + 1);
  static constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
  static_assert(128 * (kWarpgroups * kConsumerRegisters + kProducerRegisters) <=
                kThreads * (65536 / kThreads / 8 * 8));
  static constexpr int kBoxBytes = kMxFp4BoxRows * kRowBytes, kStages = 5;
  static constexpr int kStageBytes = kMxFp4TileRows * kRowBytes;
  static constexpr int kChunkRows = 64;  // rows with outputs that are written together
  static constexpr int kOutputBytes = kChunkRows * 128;
  static constexpr int kBarrierBytes = 128, kMaxExperts = 512;
  static constexpr int kBarriersAt = kStages * kStageBytes + kWarpgroups * kOutputBytes;
  static constexpr int kBeginAt = kBarriersAt + kBarrierBytes;
  static constexpr int kKinds = 3;  // kinds of tiles, by their rows of x
  static constexpr int kSharedBytes =
      kBeginAt + (1 + kKinds) * (kMaxExperts + 1) * static_cast<int>(sizeof(int32_t));
  static_assert(16 * kStages <= kBarrierBytes && kSharedBytes <= 227 << 10 && kMxFp4BlockInputs == kBlockK);
};

template <bool kGated>
class MxFp4TilesCta {
  using T = __nv_bfloat16;
  using Config = MxFp4TilesConfig;
  static constexpr int kOutputs = kGated ? kMxFp4TileWeights / 2 : kMxFp4TileWeights;  // per tile
  static constexpr int kSteps = kBlockK / 16, kMmaBytes = 32;  // wgmma steps; bytes of a row of x
  using Factors = uint32_t[kSteps][4];
  // K-blocks with quantized values in flight: shorter K-blocks need more.
  static constexpr int kMaxDepth = 4;
  static __host__ __device__ constexpr int pipeline_depth(int kind) { return kind == 0 ? 2 : kMaxDepth; }

  struct Tile {
    int expert, first_row, num_rows, first_output;
  };
  // A lane's part of its two rows of a K-block, as loaded.
  struct Codes {
    uint2 low, high;
    uint32_t low_exponent, high_exponent;
  };

 public:
  __device__ __forceinline__ MxFp4TilesCta(const MxFp4TilesParams& params, char* shared)
      : params_(params),
        product_(params.product),
        shared_(ptx::shared_address(shared)),
        first_row_(reinterpret_cast<int32_t*>(shared + Config::kBeginAt)),
        num_k_blocks_(product_.in_features / kBlockK),
        tiles_across_((product_.out_features + kOutputs - 1) / kOutputs) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < Config::kStages; ++stage) {
        ptx::mbarrier_init(full(stage), 1);
        ptx::mbarrier_init(empty(stage), Config::kConsumerWarps);
      }
      ptx::fence_mbarrier_init();
    }
    ptx::griddepcontrol_wait();
    // Not before the wait: the next kernel may read data early that a kernel before this one has written.
    ptx::launch_dependents();
    for (int i = static_cast<int>(threadIdx.x); i <= product_.num_experts; i += Config::kThreads)
      first_row_[i] = product_.first_row[i];
    __syncthreads();
    if (threadIdx.x < 32 * Config::kKinds) count_tiles(static_cast<int>(threadIdx.x) / 32);
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup < Config::kWarpgroups) {
      ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
      consume<0>();
      consume<1>();
      consume<2>();
    } else {
      ptx::setmaxnreg_dec<Config::kProducerRegisters>();
      if (static_cast<int>(threadIdx.x) == 128 * Config::kWarpgroups) produce();
    }
  }

 private:
  __device__ __forceinline__ uint32_t x_at(int stage) const { return shared_ + stage * Config::kStageBytes; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return shared_ + Config::kBarriersAt + 8 * stage;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Config::kStages + stage); }

  // Returns the rows of x of a kind's tiles, the largest kind first. An expert's last rows are a tile of the
  // smallest kind that holds them. Tile rows past the expert's last one belong to other experts, and their
  // results are not written.
  static __host__ __device__ constexpr int kind_rows(int kind) { return kMxFp4TileRows >> kind; }
  __device__ __forceinline__ static int num_kind_tiles(int kind, int num_rows) {
    const int rest = num_rows % kMxFp4TileRows;
    const bool own = rest > (kind + 1 < Config::kKinds ? kind_rows(kind) / 2 : 0) && rest <= kind_rows(kind);
    return (kind == 0 ? num_rows / kMxFp4TileRows : 0) + (own ? 1 : 0);
  }
  // Called by one warp: computes the first row tile of each expert for a kind.
  __device__ __forceinline__ void count_tiles(int kind) const {
    int before = 0;
    for (int first = 0; first < product_.num_experts; first += 32) {
      const int expert = first + lane();
      const int count = expert < product_.num_experts
                            ? num_kind_tiles(kind, first_row_[expert + 1] - first_row_[expert])
                            : 0;
      int up_to = count;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, up_to, step);
        if (lane() >= step) up_to += other;
      }
      if (expert < product_.num_experts) first_tile(kind)[expert] = before + up_to - count;
      before += __shfl_sync(0xffffffffu, up_to, 31);
    }
    if (lane() == 0) first_tile(kind)[product_.num_experts] = before;
  }
  __device__ __forceinline__ int32_t* first_tile(int kind) const {
    return first_row_ + (1 + kind) * (Config::kMaxExperts + 1);
  }

  // A CTA's tiles of a kind, with a stride of the number of CTAs, after those of the previous kinds.
  struct Share {
    int begin, end;
  };
  __device__ __forceinline__ Share cta_share(int kind) const {
    int before = 0;
    for (int i = 0; i < kind; ++i) before += first_tile(i)[product_.num_experts] * tiles_across_;
    const int num_ctas = static_cast<int>(gridDim.x);
    return {.begin = (static_cast<int>(blockIdx.x) + num_ctas - before % num_ctas) % num_ctas,
            .end = first_tile(kind)[product_.num_experts] * tiles_across_};
  }
  // Tiles of the same rows are neighbors, followed by tiles of the same expert: they run concurrently and
  // share x and W in L2.
  __device__ __forceinline__ Tile tile_at(int kind, int i) const {
    const int row_tile = i / tiles_across_;
    const int32_t* const begins = first_tile(kind);
    int expert = 0, end = product_.num_experts;  // finds the last expert with a first tile <= row_tile
    while (end - expert > 1) {
      const int middle = (expert + end) / 2;
      (begins[middle] <= row_tile ? expert : end) = middle;
    }
    const int begin = first_row_[expert], num_rows = first_row_[expert + 1] - begin;
    const int row =
        kind == 0 ? (row_tile - begins[expert]) * kMxFp4TileRows : num_rows / kMxFp4TileRows * kMxFp4TileRows;
    return {.expert = expert,
            .first_row = begin + row,
            .num_rows = min(kMxFp4TileRows, num_rows - row),
            .first_output = i % tiles_across_ * kOutputs};
  }

  __device__ __forceinline__ void produce() const {
    const uint64_t policy = ptx::createpolicy_evict_last();
    PipelineState state;
#pragma unroll 1
    for (int kind = 0; kind < Config::kKinds; ++kind) {
      const Share share = cta_share(kind);
      const int num_boxes = kind_rows(kind) / kMxFp4BoxRows;
      for (int i = share.begin; i < share.end; i += static_cast<int>(gridDim.x)) {
        const Tile tile = tile_at(kind, i);
#pragma unroll 1
        for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
          ptx::mbarrier_wait(empty(state.stage), state.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(full(state.stage), num_boxes * Config::kBoxBytes);
          for (int box = 0; box < num_boxes; ++box)
            ptx::cp_async_bulk_tensor(x_at(state.stage) + box * Config::kBoxBytes, &params_.x,
                                      k_block * kBlockK, tile.first_row + box * kMxFp4BoxRows,
                                      full(state.stage), policy);
          state.advance(Config::kStages);
        }
      }
    }
  }

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  // index among the consumer warps
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int warpgroup() { return static_cast<int>(threadIdx.x) / 128; }

  template <int kKind>
  __device__ __forceinline__ void consume() {
    const Share share = cta_share(kKind);
    if (share.begin >= share.end) return;
    Tile tile = tile_at(kKind, share.begin);
    begin<pipeline_depth(kKind)>(tile);
#pragma unroll 1
    for (int i = share.begin; i < share.end;) {
      float sums[kind_rows(kKind) / 2];
      multiply<pipeline_depth(kKind)>(sums);
      const LateBias biases[2] = {biases_[0], biases_[1]};
      const Tile done = tile;
      i += static_cast<int>(gridDim.x);
      if (i < share.end) {
        tile = tile_at(kKind, i);
        begin<pipeline_depth(kKind)>(tile);
      }
      write(done, biases, sums);
    }
  }

  // Returns the input, or output, of 64 at a position.
  __device__ __forceinline__ static int input_at(int place) {
    const int w = place >> 5 & 1, hq = place >> 3 & 3, t = place >> 1 & 3, e = place & 1;
    return t * 16 + w * 8 + e * 4 + hq;
  }
  // Returns the output of a lane's first or second row of W; if gated, both rows have the same output.
  __device__ __forceinline__ int find_output(const Tile& tile, int half) const {
    const int row = lane() / 4;
    return tile.first_output + (kGated ? input_at(warp() * 8 + row) : warp() * 16 + half * 8 + row);
  }
  __device__ __forceinline__ int64_t weight_row(const Tile& tile, int half) const {
    return expert_weight_row(product_, tile.expert, kGated ? half : 0,
                             min(find_output(tile, half), product_.out_features - 1));
  }

  // Starts a tile: loads its first quantized values, and its biases.
  template <int kDepth>
  __device__ __forceinline__ void begin(const Tile& tile) {
    const int64_t low = weight_row(tile, 0), high = weight_row(tile, 1);
    const int row_bytes = product_.in_features / 2, columns = product_.weight.scale_columns,
              lane_in_row = lane() % 4;
    const auto* const data = static_cast<const uint8_t*>(product_.weight.data) + lane_in_row * 8;
    const auto* const scales = static_cast<const uint8_t*>(product_.weight.scales) + lane_in_row / 2;
    low_ = data + low * row_bytes;
    high_ = data + high * row_bytes;
    low_scales_ = scales + low * columns;
    high_scales_ = scales + high * columns;
    biases_[0] = biases_[1] = LateBias();
    biases_[0].ask(product_.epilogue.bias, low);
    biases_[1].ask(product_.epilogue.bias, high);
#pragma unroll
    for (int i = 0; i < kDepth; ++i)
      if (i < num_k_blocks_) codes_[i] = load(i);
  }
  __device__ __forceinline__ Codes load(int k_block) const {
    return {__ldg(reinterpret_cast<const uint2*>(low_ + k_block * (kBlockK / 2))),
            __ldg(reinterpret_cast<const uint2*>(high_ + k_block * (kBlockK / 2))),
            __ldg(low_scales_ + k_block * 2), __ldg(high_scales_ + k_block * 2)};
  }

  // Returns 2^(e - 127), twice; subnormal in bf16 for e = 0.
  __device__ static uint32_t scale_to_pair(uint32_t exponent) {
    const uint32_t scale = exponent == 0 ? 0x40u : exponent << 7;
    return scale << 16 | scale;
  }
  __device__ __forceinline__ static void dequantize(const Codes& codes, Factors& factors) {
    const uint32_t scales[2] = {scale_to_pair(codes.low_exponent), scale_to_pair(codes.high_exponent)};
    const uint32_t words[2][2] = {{codes.low.x, codes.high.x}, {codes.low.y, codes.high.y}};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint32_t eight = words[step / 2][row] >> 8 * (step % 2);
        factors[step][row] = scaled_up<T>(dequantize_e2m1<T, 0>(eight), scales[row]);
        factors[step][row + 2] = scaled_up<T>(dequantize_e2m1<T, 1>(eight), scales[row]);
      }
      // Empty instructions with the operands as inputs: they keep the dequantization here, where the tensor
      // cores multiply. Otherwise the compiler moves it to the use of the operands.
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(factors[step][i])::"memory");
  }

  template <int kDepth, int kCount>
  __device__ __forceinline__ void multiply(float (&sums)[kCount]) {
    Factors even, odd;
    dequantize(codes_[0], even);
    if (kDepth < num_k_blocks_) codes_[0] = load(kDepth);
#pragma unroll 1
    for (int first = 0; first < num_k_blocks_; first += kDepth) {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (first + i >= num_k_blocks_) break;
        step<kDepth>(first + i, i % 2 == 0 ? even : odd, i % 2 == 0 ? odd : even, codes_[(i + 1) % kDepth],
                     sums);
      }
    }
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(sums);
    release(last_stage_);
  }
  // Multiplies a K-block by the operands `now`. Meanwhile the next operands are dequantized from `codes`,
  // which is refilled with values kDepth K-blocks ahead.
  template <int kDepth, int kCount>
  __device__ __forceinline__ void step(int k_block, Factors& now, Factors& next, Codes& codes,
                                       float (&sums)[kCount]) {
    ptx::mbarrier_wait(full(state_.stage), state_.parity);
    const uint64_t x = ptx::smem_descriptor(x_at(state_.stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_mma_async_rs_k_major(sums, now[step], x + step * (kMmaBytes / 16), k_block > 0 || step > 0,
                                      T{});
    ptx::wgmma_commit_group();
    // The previous K-block's wgmma has finished: its stage and `next` are free.
    ptx::wgmma_wait_group<1>();
    if (k_block > 0) release(last_stage_);
    last_stage_ = state_.stage;
    state_.advance(Config::kStages);
    dequantize(codes, next);
    if (k_block + 1 + kDepth < num_k_blocks_) codes = load(k_block + 1 + kDepth);
  }
  __device__ __forceinline__ void release(int stage) const {
    if (lane() == 0) ptx::mbarrier_arrive(empty(stage));
  }

  // Writes outputs. For every eight rows of x, a lane has rows 2 (l % 4) and 2 (l % 4) + 1 of both of its
  // rows of W. Warps transpose groups of eight and store them in shared memory, 64 rows of x at a time;
  // warpgroups then write whole sectors.
  template <int kCount>
  __device__ __forceinline__ void write(const Tile& tile, const LateBias (&biases)[2],
                                        const float (&sums)[kCount]) const {
    const ExpertEpilogue& rule = product_.epilogue;
    const float first_bias = biases[0].number(rule.bias), second_bias = biases[1].number(rule.bias);
    const int barrier = 1 + warpgroup(), warp_in_group = warp() % 4;
    const uint32_t to = shared_ + Config::kStages * Config::kStageBytes + warpgroup() * Config::kOutputBytes;
    // kRowPieces: 16-byte pieces of outputs
    constexpr int kEights = Config::kChunkRows / 8, kRowPieces = kGated ? 4 : 8;
#pragma unroll
    for (int chunk = 0; chunk < kCount * 2 / Config::kChunkRows; ++chunk) {
      // The previous contents have been written to memory.
      ptx::barrier_sync(barrier, 128);
#pragma unroll
      for (int eight = 0; eight < kEights; ++eight) {
        const int at = (chunk * kEights + eight) * 4;
        float values[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] = sums[at + j];
        if (rule.input_weights != nullptr) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int row = (chunk * kEights + eight) * 8 + lane() % 4 * 2 + j;
            const float weight =
                row < tile.num_rows ? rule.input_weights[rule.row_pair[tile.first_row + row]] : 0.0f;
            values[j] *= weight;
            values[j + 2] *= weight;
          }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] += j < 2 ? first_bias : second_bias;
        const int row = eight * 8 + lane() / 4;  // row of x after the transpose
        if constexpr (kGated) {
          put(to, row, warp_in_group, activated(values[0], values[2]), activated(values[1], values[3]));
        } else {
          put(to, row, warp_in_group * 2, values[0], values[1]);
          put(to, row, warp_in_group * 2 + 1, values[2], values[3]);
        }
      }
      ptx::barrier_sync(barrier, 128);
      const int first_output =
          tile.first_output + static_cast<int>(threadIdx.x) / 128 * (kOutputs / Config::kWarpgroups);
#pragma unroll
      for (int copy = 0; copy < Config::kChunkRows * kRowPieces / 128; ++copy) {
        const int piece = copy * 128 + static_cast<int>(threadIdx.x) % 128, own = piece % kRowPieces,
                  row = piece / kRowPieces, tile_row = chunk * Config::kChunkRows + row;
        const int output = first_output + own * 8;
        if (tile_row < tile.num_rows && output < product_.out_features)
          *reinterpret_cast<uint4*>(static_cast<T*>(product_.out) +
                                    int64_t{tile.first_row + tile_row} * product_.out_features + output) =
              ptx::ld_shared_16(place(to, row, own));
      }
    }
  }
  // Returns the address of a piece of a row of outputs; neighboring rows are in different banks.
  __device__ __forceinline__ static uint32_t place(uint32_t to, int row, int piece) {
    return kGated ? to + row * 64 + (piece ^ (row / 2 & 3)) * 16 : to + row * 128 + (piece ^ (row & 7)) * 16;
  }
  // Stores eight outputs of eight rows of x, of which this lane provides two.
  __device__ __forceinline__ static void put(uint32_t to, int row, int piece, float first, float second) {
    const T pair[2] = {T(first), T(second)};
    const uint32_t transposed = ptx::transpose(*reinterpret_cast<const uint32_t*>(pair));
    ptx::st_shared_4(place(to, row, piece) + lane() % 4 * 4, transposed);
  }
  // Activation of gate and up. SiLU uses the same code without limits and without adding 1 to up.
  __device__ __forceinline__ float activated(float gate, float up) const {
    const ExpertEpilogue& rule = product_.epilogue;
    float exponent = rule.gelu ? gelu_exponent(gate) : gate;
    if (rule.clamped) {
      const float limit = rule.limit;
      gate = gate > limit ? limit : gate;
      up = 1.0f + (up > limit ? limit : up < -limit ? -limit : up);
      exponent = rule.alpha * gate;
    }
    return __fdividef(gate, 1.0f + __expf(-exponent)) * up;
  }

  const MxFp4TilesParams& params_;
  const GroupedGemmParams& product_;
  const uint32_t shared_;
  // In shared memory: first row of each expert, and the end of the last one; followed by the first row tiles
  // of each kind.
  int32_t* const first_row_;
  const int num_k_blocks_, tiles_across_;
  // State of a consumer.
  PipelineState state_;
  int last_stage_ = 0;
  const uint8_t *low_ = nullptr, *high_ = nullptr, *low_scales_ = nullptr, *high_scales_ = nullptr;
  Codes codes_[kMaxDepth];  // of the K-blocks that are dequantized next
  LateBias biases_[2];
};

template <bool kGated>
__global__ void __launch_bounds__(MxFp4TilesConfig::kThreads, 1)
    mxfp4_tiles_kernel(const __grid_constant__ MxFp4TilesParams params) {
  extern __shared__ __align__(1024) char shared[];
  MxFp4TilesCta<kGated>(params, shared).run();
}

template <bool kGated>
void launch_mxfp4_tiles_instance(const MxFp4TilesParams& params, int num_ctas, void* stream) {
  constexpr auto kKernel = mxfp4_tiles_kernel<kGated>;
  allow_shared_memory<kKernel>(MxFp4TilesConfig::kSharedBytes, "moe_experts: shared memory");
  launch_dependent<MxFp4TilesParams>(
      kKernel, dim3(static_cast<unsigned>(num_ctas)), MxFp4TilesConfig::kThreads,
      static_cast<size_t>(MxFp4TilesConfig::kSharedBytes), stream, params, "moe_experts");
}

void launch_mxfp4_tiles_bf16(const MxFp4TilesParams& params, int num_ctas, void* stream) {
  params.product.gated ? launch_mxfp4_tiles_instance<true>(params, num_ctas, stream)
                       : launch_mxfp4_tiles_instance<false>(params, num_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
