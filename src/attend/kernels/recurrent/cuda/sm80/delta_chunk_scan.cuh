// States and outputs of the chunk form (delta_chunk_layout.h) with mma.sync.
//
//   tile        16 to 64 rows of a value head's state per CTA; chunks of 64 tokens
//   warps       one per 16 rows of the state, and 2 or 4 that load the next chunks
//   registers   about 240 per computing thread: 16 rows of S in float32, and of X and the output
//   shared      2 or 3 stages of 56 KB for head_dim_k 128 and 64 rows
//   bytes       per chunk: q, k, T and A from L2 for each CTA of the head; its columns of v and out once
//   bound       shared memory, which each warp reads for itself; latency with fewer rows
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_channel_saves.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_scan.cuh"
#include "attend/kernels/recurrent/cuda/sm80/delta_chunk_kernel.h"

namespace attend::kernels::cuda::sm80 {

template <class T, int kDimK, class Stage>
class DeltaChunkWarp : public DeltaScanWarp<T, kDimK, Stage> {
 public:
  using Base = DeltaScanWarp<T, kDimK, Stage>;
  using Base::Base;

  __device__ void step(const Stage& stage, const DeltaChunk& chunk) {
    const int column = lane_ % 4 * 2;  // of this lane in each tile
    const uint32_t k = ptx::shared_address(stage.k), q = ptx::shared_address(stage.q);
    this->load_save_slots(chunk);
    float x[kChunkTiles][4] = {}, out[kChunkTiles][4] = {};
#pragma unroll
    for (int step = 0; step < kDimK / 16; ++step) {
      uint32_t a[4];
      to_operand_a<T>(state_.tiles[2 * step], state_.tiles[2 * step + 1], a);
      multiply_rows(a, k, step, x);
      multiply_rows(a, q, step, out);
    }
    scale_columns(out, stage.factors[kScaledQuery], column);
    this->subtract_from_v(stage, column, x);

    uint32_t a[kChunkBlocks][4];
    to_operands_a<T>(x, a);
    float v[kChunkTiles][4] = {};
    const uint32_t matrices = ptx::shared_address(stage.matrices);
    multiply_lower<T>(a, matrices, v, lane_);
    to_operands_a<T>(v, a);
    multiply_lower<T>(a, matrices + kDeltaMatrixBytes, out, lane_);
    this->store_out(chunk, out);

    uint32_t written_k = k;
    if constexpr (Stage::kPerChannel) {
      save_states_of(chunk, /*at_end=*/false, [&](int last, int slot) {
        save_channel_state<T, kDimK>(params_, chunk, head_, stage.factors[kKeyNorm], state_, v, last,
                                     this->rows_of(slot), lane_);
      });
      state_.scale_columns(stage.decays, column);
      written_k = ptx::shared_address(stage.written_k);
    } else {
      this->save_states(stage, v);
      scale_columns(v, stage.factors[kScaledKey], column);
      to_operands_a<T>(v, a);
      state_.scale(this->chunk_decay(stage));
    }
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block)
#pragma unroll
      for (int pair = 0; pair < kDimK / 16; ++pair)
        this->add_outer(a[block], written_k, block, pair, state_.tiles[2 * pair], state_.tiles[2 * pair + 1]);
    if constexpr (Stage::kPerChannel)
      save_states_of(chunk, /*at_end=*/true, [&](int, int slot) { state_.store(this->rows_of(slot)); });
  }

 private:
  using Base::head_;
  using Base::lane_;
  using Base::params_;
  using Base::save_slots_;
  using Base::state_;

  // Calls save(row, slot) for the states that the step saves after the last token of the request in this
  // chunk (`at_end`), or after the other ones.
  template <class Save>
  __device__ void save_states_of(const DeltaChunk& chunk, bool at_end, const Save& save) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int own = lane_ + 32 * i;
      const bool is_end = own == kDeltaChunk - 1 || !chunk.has(own + 1);
      unsigned saves = __ballot_sync(0xffffffffu, save_slots_[i] != 0 && is_end == at_end);
      for (; saves != 0; saves &= saves - 1) {
        const int owner = __ffs(static_cast<int>(saves)) - 1;
        save(owner + 32 * i, __shfl_sync(0xffffffffu, save_slots_[i], owner));
      }
    }
  }

  // sum += a rows^T, with 16 columns of all rows of the chunk.
  __device__ void multiply_rows(const uint32_t (&a)[4], uint32_t rows, int step,
                                float (&sum)[kChunkTiles][4]) const {
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, rows + Stage::KeyRows::offset(block * 16 + (lane_ & 7) + (lane_ >> 4) * 8,
                                                        step * 16 + (lane_ >> 3 & 1) * 8));
      ptx::mma_m16n8k16(sum[2 * block], a, b[0], b[1], T{});
      ptx::mma_m16n8k16(sum[2 * block + 1], a, b[2], b[3], T{});
    }
  }
};

template <class T, int kDimK_, class Stage_>
struct DeltaChunkScan {
  using Type = T;
  using Stage = Stage_;
  using Warp = DeltaChunkWarp<T, kDimK_, Stage>;
  static constexpr int kDimK = kDimK_, kSlice = Stage::kSlice, kStages = delta_scan_stages(kSlice),
                       kWarps = kSlice / 16;
  // With few rows, two CTAs share the registers of an SM.
  static constexpr int kThreads = 32 * (kWarps + (kSlice == 64 ? 4 : 2));

  static __device__ void begin_loading() {}
  static __device__ void begin_computing() {}
  static __device__ void loaded() {}
};

template <class Scan>
__global__ void __launch_bounds__(Scan::kThreads, 1)
    delta_chunk_scan_kernel(const __grid_constant__ DeltaChunkParams params) {
  ptx::launch_dependents();
  extern __shared__ __align__(16) char memory[];
  ptx::griddepcontrol_wait();
  walk_delta_chunks<Scan>(params, reinterpret_cast<typename Scan::Stage*>(memory));
}

template <class T, int kDimK, class Stage>
void launch_delta_scan_for(const DeltaChunkParams& params, void* stream) {
  using Scan = DeltaChunkScan<T, kDimK, Stage>;
  constexpr auto kKernel = delta_chunk_scan_kernel<Scan>;
  constexpr int kBytes = delta_scan_shared_bytes(kDimK, Scan::kSlice, Stage::kPerChannel);
  static_assert(kBytes == Scan::kStages * sizeof(typename Scan::Stage));
  allow_shared_memory<kKernel>(kBytes, "gated_delta_rule");
  const DeltaParams& delta = params.delta;
  launch_dependent<DeltaChunkParams>(
      kKernel,
      dim3(static_cast<unsigned>(delta.num_v_heads * delta.dim_v / Scan::kSlice),
           static_cast<unsigned>(delta.batch.num_reqs)),
      Scan::kThreads, kBytes, stream, params, "gated_delta_rule");
}

template <class T, int kDimK>
void launch_delta_chunk_scan_for_dim(const DeltaChunkParams& params, int slice, void* stream) {
  using Rows = PaddedRows<kDimK>;
  if (slice == 64) return launch_delta_scan_for<T, kDimK, DeltaStage<Rows, 64>>(params, stream);
  if (slice == 32) return launch_delta_scan_for<T, kDimK, DeltaStage<Rows, 32>>(params, stream);
  launch_delta_scan_for<T, kDimK, DeltaStage<Rows, 16>>(params, stream);
}

template <class T>
void launch_delta_chunk_scan(const DeltaChunkParams& params, int slice, void* stream) {
  if (params.delta.dim_k == 64) return launch_delta_chunk_scan_for_dim<T, 64>(params, slice, stream);
  if (params.delta.dim_k == 96) return launch_delta_chunk_scan_for_dim<T, 96>(params, slice, stream);
  launch_delta_chunk_scan_for_dim<T, 128>(params, slice, stream);
}

}  // namespace attend::kernels::cuda::sm80
