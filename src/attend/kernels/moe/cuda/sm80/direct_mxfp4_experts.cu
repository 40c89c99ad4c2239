// Direct experts in mxfp4 with few rows each: every warp reads W for itself.
//
//   tile        up to 8 rows of one expert x 16 rows of W: gate and up of 8 outputs, or 16 outputs
//   work        one CTA per SM, with an even share of all tiles; they are neighbors of one expert, so x stays
//   warps       16, all alike: each computes its own tiles over all of K and prefetches its own strips of W,
//               including those of its next tile. Warps synchronize only when x changes
//   registers   128 at most
//   shared      per warp kDepth strips of quantized values and the scales of three tiles; 8 to 16 rows of x
//               in the order in which lanes read them, shared by consecutive tiles; the rows of all experts
//   bytes       W once per 8 rows of an expert, bypassing L1, which has too few lines for the loads in
//               flight; x once per CTA, from L2
//   bound       dequantizing W
//
// A lane has 16 of each 64 inputs of its two rows of W, half of those that share a scale: of the four lanes
// of a row, lanes 0 and 1 have one scale, lanes 2 and 3 another one. Columns c and c + 4 of operand B have
// the same row of x: one has the inputs of the first two lanes, the other those of the last two, and zeros
// elsewhere. So each sum has one scale, by which it is multiplied (mxfp4_sums.cuh), and four rows of x are
// multiplied by one instruction.
//
// The intermediate activations are stored in the order in which the second product's lanes read them.
#include "attend/kernels/common/cuda/device_attribute.h"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/copy.cuh"
#include "attend/kernels/common/cuda/ptx/copy_word.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/gemm/cuda/sm80/skinny_gemm_kernel.h"
#include "attend/kernels/moe/cuda/common/expert_rows.cuh"
#include "attend/kernels/moe/cuda/common/grouped_tile.cuh"
#include "attend/kernels/moe/cuda/common/late_bias.cuh"
#include "attend/kernels/moe/cuda/sm80/mxfp4_sums.cuh"
#include "attend/kernels/moe/cuda/sm80/skinny_experts_kernel.h"

namespace attend::kernels::cuda::sm80 {

inline constexpr int kDirectWarps = 16, kDirectThreads = 32 * kDirectWarps;

template <bool kGated>
class DirectExpertsCta {
  using T = __nv_bfloat16;
  static_assert(kDirectInputs == 64);
  static constexpr int kTileRows = 8, kQuad = 4, kQuads = kTileRows / kQuad;                 // rows of x
  static constexpr int kWeightRows = 16, kOutputs = kGated ? kWeightRows / 2 : kWeightRows;  // per tile
  // inputs per piece, and per part; parts per strip, which is one prefetch unit
  static constexpr int kPieceInputs = 8, kPartInputs = 64, kParts = 4;
  static constexpr int kPieces = kPartInputs / kPieceInputs;  // per part
  static constexpr int kDepth = 2;                            // strips in flight
  // Tiles with scales in shared memory: those of the strips in flight, and the one that is multiplied.
  static constexpr int kScaleTiles = kDepth + 1;
  static constexpr int kLineBytes = kParts * kPartInputs / 2;  // bytes of a strip per row
  static constexpr int kStripBytes = kWeightRows * kLineBytes;
  static constexpr int kCopies = kStripBytes / 16 / 32;  // copies per lane
  static constexpr int kPadBytes = 64;                   // padding between rows of x to avoid bank conflicts
  static_assert(kLineBytes == 128 && kCopies == 4);
  using Sums = float[kQuads][4];

 public:
  using Sorted = ExpertRows<kDirectThreads, kTileRows, kMaxDirectPairs>;
  static constexpr int kSortedBytes = (static_cast<int>(sizeof(Sorted)) + 15) / 16 * 16;
  static constexpr int kZeroBytes = kParts * kPartInputs * 2;  // x of a strip for lanes with a zero column
  static __host__ __device__ constexpr int row_bytes(int in_features) { return in_features * 2 + kPadBytes; }
  static __host__ __device__ constexpr int scale_bytes(int in_features) {
    return kWeightRows * in_features / 32;
  }
  static __host__ __device__ constexpr int x_at(int in_features) {
    return kSortedBytes + kZeroBytes +
           kDirectWarps * (kDepth * kStripBytes + kScaleTiles * scale_bytes(in_features));
  }
  // Returns the number of rows of x that fit.
  static __host__ __device__ constexpr int x_rows(int in_features) {
    const int room = (kMaxDirectBytes - x_at(in_features)) / row_bytes(in_features);
    return room > 2 * kTileRows ? 2 * kTileRows : room;
  }
  static __host__ __device__ constexpr int shared_bytes(int in_features) {
    return x_at(in_features) + x_rows(in_features) * row_bytes(in_features);
  }

  __device__ DirectExpertsCta(const SkinnyExpertsParams& params, char* shared)
      : params_(params),
        sorted_(*reinterpret_cast<Sorted*>(shared)),
        zeros_(ptx::shared_address(shared + kSortedBytes)),
        x_(ptx::shared_address(shared + x_at(params.in_features))),
        row_bytes_(row_bytes(params.in_features)),
        x_rows_(x_rows(params.in_features)),
        num_parts_(params.in_features / kPartInputs),
        chunks_(params.out_features / kOutputs),
        warp_(__shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        strips_(zeros_ + kZeroBytes + warp_ * kDepth * kStripBytes),
        scales_(zeros_ + kZeroBytes + kDirectWarps * kDepth * kStripBytes +
                warp_ * kScaleTiles * scale_bytes(params.in_features)) {}

  __device__ __forceinline__ void run() {
    if (threadIdx.x < kZeroBytes / 16)
      ptx::st_shared_16(zeros_ + static_cast<int>(threadIdx.x) * 16, uint4{});
    if constexpr (kGated) {
      ptx::griddepcontrol_wait();
      // Not before the wait: the next kernel reads data early that the previous kernel has written.
      ptx::launch_dependents();
    }
    sorted_.sort(params_.experts, params_.num_tokens * params_.top_k, params_.top_k, params_.num_experts);
    const int64_t num_tiles = int64_t{sorted_.num_tiles()} * chunks_;
    const int begin = static_cast<int>(num_tiles * blockIdx.x / gridDim.x);
    end_ = static_cast<int>(num_tiles * (blockIdx.x + 1) / gridDim.x);
    if (begin == end_) return;
    int tile = begin + warp_;
    next_.tile = tile;
    begin_tile();
    for (int i = 0; i < kDepth; ++i) load_next_strip();
    if constexpr (!kGated) {
      ptx::griddepcontrol_wait();
      ptx::launch_dependents();
    }
    // Iterates over tiles of rows with x in shared memory, up to the last ones of the CTA.
    int first = begin / chunks_;
    const int last = (end_ - 1) / chunks_ + 1;
    while (first < last) {
      const int until = load_x(first, last);
      for (const int limit = min(end_, until * chunks_); tile < limit; tile += kDirectWarps)
        multiply(tile, sorted_.tile(first).first_row);
      first = until;
      if (first < last) __syncthreads();
    }
  }

 private:
  __device__ __forceinline__ GroupedGemmParams layout() const {
    GroupedGemmParams layout;
    layout.gated = kGated;
    layout.alternating = params_.alternating;
    layout.out_features = params_.out_features;
    layout.epilogue = params_.epilogue;
    return layout;
  }

  // Returns the output of a lane's first or second row of W.
  __device__ __forceinline__ int find_output(int row_tile, int tile, int half) const {
    return (tile - row_tile * chunks_) * kOutputs + lane_ / 4 + (kGated ? 0 : half * 8);
  }
  __device__ __forceinline__ int64_t weight_row(int row_tile, int tile, int half) const {
    const int expert = sorted_.tile(row_tile).expert, output = find_output(row_tile, tile, half);
    return expert_weight_row(layout(), expert, kGated ? half : 0, output);
  }

  // Stride between the rows of W of one half: row g of a half is `half_row_stride` g rows after the half's
  // first one.
  __device__ __forceinline__ int half_row_stride() const { return kGated && params_.alternating ? 2 : 1; }

  // Advances to the tile of the next strips: loads its scales, and sets the source of a lane's first copy.
  __device__ __forceinline__ void begin_tile() {
    next_.part = 0;
    if (next_.tile >= end_) return;
    const int row_tile = next_.tile / chunks_;
    const int64_t low = tile_first_row(row_tile, next_.tile, 0);
    next_.to_high = static_cast<int>(tile_first_row(row_tile, next_.tile, 1) - low);
    next_.codes = static_cast<const uint8_t*>(params_.weight.data) +
                  (low + lane_ / 8 * half_row_stride()) * (params_.in_features / 2) + lane_ % 8 * 16;
    // The scales of eight rows, or of all sixteen rows, are contiguous.
    const int columns = params_.weight.scale_columns, half_pieces = columns / 2;
    const auto* const from = static_cast<const uint8_t*>(params_.weight.scales) + low * columns;
    const int to_second = half_row_stride() == 1 ? next_.to_high * columns : 8 * columns;
    const uint32_t to = load_scales(next_.scales);
    for (int i = lane_; i < 2 * half_pieces; i += 32) {
      const int half = i >= half_pieces ? 1 : 0;
      ptx::cp_async_16(to + i * 16, from + half * to_second + (i - half * half_pieces) * 16);
    }
    next_.scales = after(next_.scales);
  }
  __device__ __forceinline__ int64_t tile_first_row(int row_tile, int tile, int half) const {
    const int expert = sorted_.tile(row_tile).expert,
              first = (tile - row_tile * chunks_) * kOutputs + (kGated ? 0 : half * 8);
    return expert_weight_row(layout(), expert, kGated ? half : 0, first);
  }
  __device__ __forceinline__ static int after(int which) { return which + 1 == kScaleTiles ? 0 : which + 1; }
  __device__ __forceinline__ uint32_t load_scales(int which) const {
    return scales_ + which * scale_bytes(params_.in_features);
  }
  // Copies the next strip, if there is one, as one cp.async group.
  __device__ __forceinline__ void load_next_strip() {
    if (next_.tile < end_) {
      const int row_bytes = params_.in_features / 2, eight_bytes = 4 * half_row_stride() * row_bytes,
                high_bytes = next_.to_high * row_bytes;
      const bool given = next_.part * 2 + lane_ % 8 < num_parts_ * 2;
      // Pieces of two parts are adjacent; those of four neighboring rows are in different banks.
      const uint32_t to =
          strips_ + next_.stage * kStripBytes + lane_ / 8 * kLineBytes + (lane_ % 8 ^ lane_ / 8 * 2) * 16;
#pragma unroll
      for (int i = 0; i < kCopies; ++i)
        ptx::cp_async_16(to + i * 4 * kLineBytes,
                         next_.codes + (given ? i % 2 * eight_bytes + i / 2 * high_bytes : 0), given);
      next_.codes += kLineBytes;
      next_.part += kParts;
      if (next_.part >= num_parts_) {
        next_.tile += kDirectWarps;
        begin_tile();
      }
    }
    if (++next_.stage == kDepth) next_.stage = 0;
    ptx::cp_async_commit_group();
  }

  // `first_row`: first row of x in shared memory.
  __device__ __forceinline__ void multiply(int tile, int first_row) {
    const int row_tile = tile / chunks_;
    const typename Sorted::Tile rows = sorted_.tile(row_tile);
    LateBias biases[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      biases[half].ask(params_.epilogue.bias, weight_row(row_tile, tile, half));
    // Columns past the tile's rows contain rows of another tile, which affect only their own sums.
    const int column = lane_ / 4, tile_first_column = rows.first_row - first_row;
    const bool has_x = column / kQuad == lane_ % 4 / 2;
    uint32_t x[kQuads];
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad)
      x[quad] = has_x
                    ? x_ + min(tile_first_column + quad * kQuad + column % kQuad, x_rows_ - 1) * row_bytes_ +
                          lane_ % 4 * 16
                    : zeros_;
    Sums sums = {};
    if (rows.num_rows > kQuad)
      multiply_strips<2>(has_x, x, sums);
    else
      multiply_strips<1>(has_x, x, sums);
    write(tile, rows, sums, biases);
  }
  // Multiplies the strips for kCount quads of rows.
  template <int kCount>
  __device__ __forceinline__ void multiply_strips(bool has_x, uint32_t (&x)[kQuads], Sums& sums) {
    const uint32_t to_next = has_x ? kParts * kPartInputs * 2 : 0;
    const int columns = params_.weight.scale_columns;
    uint32_t scales = load_scales(own_scales_) + lane_ / 4 * half_row_stride() * columns + lane_ % 4 / 2;
    const uint32_t to_high = half_row_stride() == 2 ? columns : 8 * columns;
    own_scales_ = after(own_scales_);
#pragma unroll 1
    for (int first = 0; first < num_parts_; first += kParts) {
      ptx::cp_async_wait_group<kDepth - 1>();
      __syncwarp();
      if (first + kParts <= num_parts_) {
#pragma unroll
        for (int i = 0; i < kParts; ++i) multiply_part<kCount>(i, scales, to_high, x, sums);
      } else {
#pragma unroll 1
        for (int i = 0; i < num_parts_ - first; ++i) multiply_part<kCount>(i, scales, to_high, x, sums);
      }
      scales += 2 * kParts;
#pragma unroll
      for (int quad = 0; quad < kCount; ++quad) x[quad] += to_next;
      __syncwarp();
      if (++stage_ == kDepth) stage_ = 0;
      load_next_strip();
    }
  }
  template <int kCount>
  __device__ __forceinline__ void multiply_part(int i, uint32_t scales, uint32_t to_high,
                                                const uint32_t (&x)[kQuads], Sums& sums) const {
    const uint32_t codes = strips_ + stage_ * kStripBytes + lane_ / 4 * kLineBytes + lane_ % 2 * 8 +
                           ((2 * i + lane_ % 4 / 2) ^ lane_ / 4 % 4 * 2) * 16;
    const float2 low = ptx::ld_shared_8(codes), high = ptx::ld_shared_8(codes + 8 * kLineBytes);
    const float low_scale = MxFp4Sums::to_scale(ptx::ld_shared_1(scales + 2 * i)),
                high_scale = MxFp4Sums::to_scale(ptx::ld_shared_1(scales + to_high + 2 * i));
    float products[kCount][4] = {};
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      MxFp4Sums::Factors weights;
      MxFp4Sums::widen(__float_as_uint(word == 0 ? low.x : low.y),
                       __float_as_uint(word == 0 ? high.x : high.y), weights);
#pragma unroll
      for (int quad = 0; quad < kCount; ++quad)
        MxFp4Sums::add_products(weights, ptx::ld_shared_16(x[quad] + i * kPartInputs * 2 + word * 64),
                                products[quad]);
    }
#pragma unroll
    for (int quad = 0; quad < kCount; ++quad)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        sums[quad][j] = fmaf(products[quad][j], j < 2 ? low_scale : high_scale, sums[quad][j]);
  }
  // Writes outputs. For each quad, lanes 0 and 1 of four have rows of x 2 (l % 4) and 2 (l % 4) + 1, to which
  // the sums of lanes 2 and 3 are added; rows of W are l / 4 and l / 4 + 8.
  __device__ __forceinline__ void write(int tile, const typename Sorted::Tile& rows, Sums& sums,
                                        const LateBias (&biases)[2]) const {
    const int row_tile = tile / chunks_;
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
#pragma unroll
      for (float& sum : sums[quad]) {
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        sum *= MxFp4Sums::kFromSums;
      }
    }
    // Lanes 2 and 3 write the other quad.
    const bool other = lane_ % 4 >= 2;
    float own[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) own[i] = other ? sums[1][i] : sums[0][i];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane_ % 4 * 2 + i;
      if (row >= rows.num_rows) continue;
      const int pair = sorted_.row_pair(rows.first_row + row);
      if constexpr (kGated) {
        put(pair, find_output(row_tile, tile, 0), own[i], own[i + 2], biases[0], biases[1]);
      } else {
        put(pair, find_output(row_tile, tile, 0), own[i], 0.0f, biases[0], biases[0]);
        put(pair, find_output(row_tile, tile, 1), own[i + 2], 0.0f, biases[1], biases[1]);
      }
    }
  }
  __device__ __forceinline__ void put(int pair, int output, float sum, float up, const LateBias& bias,
                                      const LateBias& up_bias) const {
    const DeviceVector& biases = params_.epilogue.bias;
    const float value = expert_output(layout(), pair, sum, up, [&](float& first, float& second) {
      first += bias.number(biases);
      second += up_bias.number(biases);
    });
    const int to = kGated ? output / 8 * 8 + MxFp4Sums::place_in_piece(output % 8) : output;
    static_cast<T*>(params_.out)[int64_t{pair} * params_.out_features + to] = T(value);
  }

  // Loads rows of x for the tiles of rows from `first` while they fit. Returns the first tile that did not
  // fit.
  __device__ __forceinline__ int load_x(int first, int last) const {
    const int first_row = sorted_.tile(first).first_row;
    int until = first, num_rows = 0;
    for (; until < last; ++until) {
      const typename Sorted::Tile tile = sorted_.tile(until);
      const int end_row = tile.first_row + tile.num_rows - first_row;
      if (end_row > x_rows_) break;
      num_rows = end_row;
    }
    const int pieces = params_.in_features / kPieceInputs;
    const auto* const x = static_cast<const uint4*>(params_.x);
    for (int row = 0; row < num_rows; ++row) {
      const int pair = sorted_.row_pair(first_row + row);
      const auto* const from = x + int64_t{kGated ? pair / params_.top_k : pair} * pieces;
      for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kDirectThreads)
        ptx::cp_async_16(place(row, piece), from + piece);
    }
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    for (int row = 0; row < num_rows; ++row)
      for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kDirectThreads) {
        const uint4 given = ptx::ld_shared_16(place(row, piece));
        ptx::st_shared_16(place(row, piece), MxFp4Sums::raised(kGated ? MxFp4Sums::in_pairs(given) : given));
      }
    __syncthreads();
    return until;
  }
  // The four lanes' pieces for one word of quantized values are adjacent.
  __device__ __forceinline__ uint32_t place(int row, int piece) const {
    const int piece_in_part = piece % kPieces;
    return x_ + row * row_bytes_ + (piece - piece_in_part + piece_in_part % 2 * 4 + piece_in_part / 2) * 16;
  }

  const SkinnyExpertsParams& params_;
  Sorted& sorted_;
  const uint32_t zeros_, x_;
  const int row_bytes_, x_rows_, num_parts_, chunks_;  // chunks_: tiles of W per expert
  const int warp_, lane_;
  const uint32_t strips_, scales_;  // per warp
  int end_ = 0;                     // end of the CTA's tiles
  int stage_ = 0, own_scales_ = 0;  // stage and scales that are multiplied
  // Next strip to load.
  struct {
    int tile, part, stage, scales;
    const uint8_t* codes;
    int to_high;  // distance in rows
  } next_{};
};

static_assert(DirectExpertsCta<true>::x_rows(kMaxDirectInputs) >= kSkinnyRows);

template <bool kGated>
__global__ void __launch_bounds__(kDirectThreads, 1)
    direct_experts_kernel(const __grid_constant__ SkinnyExpertsParams params) {
  extern __shared__ __align__(16) char shared[];
  DirectExpertsCta<kGated>(params, shared).run();
}

template <bool kGated>
void launch_direct_instance(const SkinnyExpertsParams& params, void* stream) {
  constexpr auto kKernel = direct_experts_kernel<kGated>;
  allow_shared_memory<kKernel>(kMaxDirectBytes, "moe_experts: shared memory");
  launch_dependent<SkinnyExpertsParams>(
      kKernel, dim3(static_cast<unsigned>(num_sms())), kDirectThreads,
      static_cast<size_t>(DirectExpertsCta<kGated>::shared_bytes(params.in_features)), stream, params,
      "moe_experts");
}

inline void launch_direct_experts(const SkinnyExpertsParams& params, void* stream) {
  params.gated ? launch_direct_instance<true>(params, stream) : launch_direct_instance<false>(params, stream);
}

void launch_direct_mxfp4_experts_bf16(const SkinnyExpertsParams& params, void* stream) {
  launch_direct_experts(params, stream);
}

}  // namespace attend::kernels::cuda::sm80
