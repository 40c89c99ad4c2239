// States and outputs of the chunk form (delta_chunk_layout.h) on sm_90a.
//
//   tile        64 or 128 rows of a value head's state per CTA; chunks of 64 tokens
//   warps       a warpgroup per 64 rows of the state, and one that loads the next chunks
//   registers   216 to 240 per computing thread: S in float32 and as operand A, X or V, and the output; 40 to
//               160 per loading thread (setmaxnreg)
//   shared      3 stages of 62 KB for 128 rows, 4 of 54 KB for 64 rows, or 2 if two CTAs share an SM
//   bytes       per chunk: q, k, T and A from L2 for each CTA of the head; its columns of v and out once
//   bound       latency of the products of a chunk, one after another; L2 with 64 rows per CTA
//
// The products with k and q use wgmma, with S and V in registers and k in both directions from the same rows.
// The lower triangular T and A are multiplied by mma.sync, while wgmma updates S.
#pragma once

#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"
#include "attend/kernels/common/cuda/ptx/wgmma.cuh"
#include "attend/kernels/recurrent/cuda/common/delta_scan.cuh"
#include "attend/kernels/recurrent/cuda/sm90/delta_chunk_scan_kernel.h"
#include "attend_generated/wgmma_codes_products.cuh"
#include "attend_generated/wgmma_products.cuh"

namespace attend::kernels::cuda::sm90 {

// Tiles of d as accumulators of wgmma, which have the same order.
template <int kTiles>
__device__ __forceinline__ float (&accumulators(float (&tiles)[kTiles][4]))[4 * kTiles] {
  return reinterpret_cast<float(&)[4 * kTiles]>(tiles);
}

template <class T, int kDimK, class Stage>
class DeltaChunkWarp : public DeltaScanWarp<T, kDimK, Stage> {
 public:
  using Base = DeltaScanWarp<T, kDimK, Stage>;
  using Base::Base;

  __device__ void step(const Stage& stage, const DeltaChunk& chunk) {
    const int column = lane_ % 4 * 2;  // of this lane in each tile
    const uint32_t k = ptx::shared_address(stage.k), q = ptx::shared_address(stage.q);
    float x[kChunkTiles][4], out[kChunkTiles][4];
    {
      uint32_t a[kDimK / 16][4];
#pragma unroll
      for (int step = 0; step < kDimK / 16; ++step)
        to_operand_a<T>(state_.tiles[2 * step], state_.tiles[2 * step + 1], a[step]);
      ptx::wgmma_fence();
      multiply_rows(a, k, x);
      multiply_rows(a, q, out);
      this->load_save_slots(chunk);
      ptx::wgmma_wait_group<0>();
      ptx::fence_operand(accumulators(x));
      ptx::fence_operand(accumulators(out));
    }
    this->subtract_from_v(stage, column, x);

    uint32_t a[kChunkBlocks][4];
    to_operands_a<T>(x, a);
    float v[kChunkTiles][4] = {};
    const uint32_t matrices = ptx::shared_address(stage.matrices);
    multiply_lower<T>(a, matrices, v, lane_);
    this->save_states(stage, v);
    to_operands_a<T>(v, a);
    scale_columns(v, stage.factors[kScaledKey], column);
    uint32_t scaled[kChunkBlocks][4];
    to_operands_a<T>(v, scaled);
    state_.scale(this->chunk_decay(stage));
    ptx::fence_operand(accumulators(state_.tiles));
    ptx::wgmma_fence();
    add_outer_products(scaled, k);

    scale_columns(out, stage.factors[kScaledQuery], column);
    multiply_lower<T>(a, matrices + kDeltaMatrixBytes, out, lane_);
    this->store_out(chunk, out);
    ptx::wgmma_wait_group<0>();
    ptx::fence_operand(accumulators(state_.tiles));
  }

 private:
  using Base::lane_;
  using Base::state_;
  static constexpr int kPanelBytes = Stage::KeyRows::kPanelBytes;

  // Issues sum = a rows^T for all rows of the chunk.
  static __device__ __forceinline__ void multiply_rows(const uint32_t (&a)[kDimK / 16][4], uint32_t rows,
                                                       float (&sum)[kChunkTiles][4]) {
    constexpr int kStepsPerPanel = 4, kStepBytes = 32;
    const uint64_t b = ptx::smem_descriptor(rows);
#pragma unroll
    for (int step = 0; step < kDimK / 16; ++step)
      ptx::wgmma_mma_async_rs_k_major(
          accumulators(sum), a[step],
          b + (step / kStepsPerPanel * kPanelBytes + step % kStepsPerPanel * kStepBytes) / 16, step > 0, T{});
    ptx::wgmma_commit_group();
  }

  // Issues S += a k.
  __device__ __forceinline__ void add_outer_products(const uint32_t (&a)[kChunkBlocks][4], uint32_t k) {
    constexpr int kBlockBytes = 16 * 128;  // 16 rows of a panel
    const uint64_t b = ptx::smem_descriptor_mn_major(k, kPanelBytes);
#pragma unroll
    for (int block = 0; block < kChunkBlocks; ++block)
      ptx::wgmma_mma_async_rs(accumulators(state_.tiles), a[block], b + block * kBlockBytes / 16, true, T{});
    ptx::wgmma_commit_group();
  }
};

template <class T, int kDimK_, int kSlice, int kStages_>
struct DeltaChunkScan {
  using Type = T;
  using Stage = DeltaStage<SwizzledRows<kDimK_>, kSlice>;
  using Warp = DeltaChunkWarp<T, kDimK_, Stage>;
  static constexpr int kDimK = kDimK_, kStages = kStages_, kWarps = kSlice / 16;
  static constexpr int kThreads = 32 * kWarps + 128;
  static constexpr int kCtasPerSm = kSlice == 64 && kStages == 2 ? 2 : 1;
  // Registers per thread of each role.
  static constexpr int kLoading = kSlice == 64 && kStages > 2 ? 160 : 40;
  static constexpr int kComputing = kSlice == 128 ? 232 : kCtasPerSm == 2 ? 216 : 240;
  static constexpr int kBytes = kStages * static_cast<int>(sizeof(Stage)) + Stage::KeyRows::kAlignment;

  static __device__ void begin_loading() { ptx::setmaxnreg_dec<kLoading>(); }
  static __device__ void begin_computing() { ptx::setmaxnreg_inc<kComputing>(); }
  static __device__ void loaded() { ptx::fence_proxy_async(); }
};

template <class Scan>
__global__ void __launch_bounds__(Scan::kThreads, Scan::kCtasPerSm)
    delta_chunk_scan_kernel(const __grid_constant__ DeltaChunkParams params) {
  ptx::launch_dependents();
  extern __shared__ char memory[];
  constexpr uintptr_t kAlignment = Scan::Stage::KeyRows::kAlignment;
  // The window of shared memory starts at a multiple of it.
  char* const stages = memory + (kAlignment - ptx::shared_address(memory) % kAlignment) % kAlignment;
  ptx::griddepcontrol_wait();
  walk_delta_chunks<Scan>(params, reinterpret_cast<typename Scan::Stage*>(stages));
}

template <class T, int kDimK, int kSlice, int kStages>
void launch_delta_chunk_scan_for(const DeltaChunkParams& params, void* stream) {
  using Scan = DeltaChunkScan<T, kDimK, kSlice, kStages>;
  constexpr auto kKernel = delta_chunk_scan_kernel<Scan>;
  allow_shared_memory<kKernel>(Scan::kBytes, "gated_delta_rule");
  const DeltaParams& delta = params.delta;
  launch_dependent<DeltaChunkParams>(kKernel,
                                     dim3(static_cast<unsigned>(delta.num_v_heads * delta.dim_v / kSlice),
                                          static_cast<unsigned>(delta.batch.num_reqs)),
                                     Scan::kThreads, Scan::kBytes, stream, params, "gated_delta_rule");
}

template <class T, int kDimK>
void launch_delta_chunk_scan_for_dim(const DeltaChunkParams& params, int slice, bool two_ctas, void* stream) {
  if (slice == 128) return launch_delta_chunk_scan_for<T, kDimK, 128, 3>(params, stream);
  if (two_ctas) return launch_delta_chunk_scan_for<T, kDimK, 64, 2>(params, stream);
  launch_delta_chunk_scan_for<T, kDimK, 64, 4>(params, stream);
}

template <class T>
void launch_delta_chunk_scan(const DeltaChunkParams& params, int slice, bool two_ctas, void* stream) {
  const auto launch = params.delta.dim_k == 64   ? launch_delta_chunk_scan_for_dim<T, 64>
                      : params.delta.dim_k == 96 ? launch_delta_chunk_scan_for_dim<T, 96>
                                                 : launch_delta_chunk_scan_for_dim<T, 128>;
  launch(params, slice, two_ctas, stream);
}

}  // namespace attend::kernels::cuda::sm90
