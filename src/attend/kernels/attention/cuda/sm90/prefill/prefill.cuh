// Attention of many rows on sm_90a, with TMA and wgmma: query rows of one request and KV head (GQA heads
// packed with query tokens) against KV tiles. Warp-specialised and persistent: two consumer warpgroups take
// turns at the tensor cores, so that the softmax of one runs beside the wgmma of the other (ping-pong), and
// each issues QK^T of its next KV tile before the softmax of the present one has ended, and that of its next
// work tile before results of the present one. Up to head dim 96 there are three, who take no turns. fp8 K/V
// become f16 on their way, and so do queries of bf16 that meet them (docs/kernels/prefill-fp8.md). Of these
// there are kernels of their own for descales of requests and heads.
//
// Verify (17 to 64 rows, head dims of V up to 128): one consumer, two CTAs of an SM, which divide the keys
// and merge what they have of a work tile as sm80's kernel does. Bound by reading K/V, as decode is.
//
// Pages of few rows (by rows): row by row by cp.async, of three of the producers' four warps. Where neither
// scores are capped nor splits fixed nor CTAs verify it is a kernel of its own, with more stages and, beside
// two consumers and up to head dim 128 of V, a warpgroup that copies.
//
// Fixed splits (head dims 128/128): bit for bit what sm80's kernel computes. Its KV tiles of 64 keys, its
// order of row sums, and at the end of a split it is merged into those before it, which lie in shared memory.
// Queries are in registers then.
//
//   tile        128 rows x 128 keys (64 at head dim 256 and under fixed splits); 192 rows x 96 keys at head
//               dims 64 and 96 (fp8: as the others); verify: 64 rows x 32 keys. Head dims 64/64, 96/96,
//               128/128, 192/128, 256/256
//   warps       1 (verify) to 3 consumer warpgroups of 64 rows each: QK^T and PV by wgmma m64n(keys)k16 and
//               m64n(head_dim_v)k16, P in registers. A producer warpgroup: a warp for K and one for V, by TMA
//               where pages have 16 rows or more (8 up to head dim 96 and to verify, fp8 4), else by rows,
//               and two for the consumers' queries and results in their place, one of which schedules. fp8: a
//               warpgroup that converts, two warps K and two V
//   registers   224 a consumer thread, 56 a producer thread (setmaxnreg); three consumers: 152 and 56; fp8:
//               208, 56 and 40 to convert; verify: 184 and 72; a warpgroup of rows: 200 and 56. Launched with
//               168 (three consumers, fp8, verify, a warpgroup of rows: 128)
//   shared      96 KB at head dims 64, 192 KB at 96 and 128, 208 KB at 192/128, 192 KB at 256; fp8: 160
//               and 224 KB; fixed splits 224 KB; verify 24, 48, 48, 64 KB; by rows 120, 216, 224, 208 and
//               224 KB. Two work tiles with their queries (one above 128 and for verify), two stages of K and
//               two of V (three under fixed splits; by rows of K but at 192/128, and of V at 64), of fp8 two,
//               or at 128 two halves, the splits that have ended
//   bytes       of a KV tile: 24 KB at head dims 64, 36 KB at 96, 64 KB at 128, 80 KB at 192/128, 64 KB at
//               256; fp8: 16 and 32 KB; verify: 8, 12, 16, 20 KB
//   bound       tensor cores, and the softmax's exponentials
#pragma once

#include "attend/kernels/attention/cuda/common/head_scales.cuh"
#include "attend/kernels/attention/cuda/common/padding.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_consumer.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_fp8_converter.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_row_loads.cuh"
#include "attend/kernels/attention/cuda/sm90/prefill/prefill_tile.cuh"
#include "attend/kernels/common/cuda/launch.cuh"
#include "attend/kernels/common/cuda/ptx/dependent_launch.cuh"
#include "attend/kernels/common/cuda/ptx/tensor_copy.cuh"
#include "attend/kernels/common/cuda/ptx/thread.cuh"
#include "attend/kernels/common/cuda/ptx/warpgroup.cuh"

namespace attend::kernels::cuda::sm90 {

template <class Tile, bool kValues>
__device__ __forceinline__ void load_keys_or_values(const PrefillParams& params,
                                                    const PrefillShared<Tile>& shared) {
  if constexpr (Tile::kConverts)
    PrefillProducer<PrefillFp8Tile<Tile>, PrefillFp8Shared<Tile>, kValues>(params, shared).run();
  else
    PrefillProducer<Tile, PrefillShared<Tile>, kValues>(params, shared).run();
}

template <class T, Element kKv, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kCtasOfSm)
    prefill_kernel(const __grid_constant__ PrefillParams params) {
  extern __shared__ __align__(kSwizzleAtom) char memory[];
  const PrefillShared<Tile> shared(memory);
  const bool by_rows = Tile::kMayLoadRows && (Tile::kByRows || params.box_rows == 0);
  if (threadIdx.x == 0) shared.init_barriers(by_rows);
  if constexpr (Tile::kVerifies) {
    if (threadIdx.x == 32 && params.box_rows > 0) {
      ptx::prefetch_tensormap(&params.k);
      ptx::prefetch_tensormap(&params.v);
    }
    if (threadIdx.x == 32 && params.box_tokens > 0) ptx::prefetch_tensormap(&params.q);
  }
  ptx::griddepcontrol_wait();
  write_padding(params.attention, num_planned_tokens<Tile>(params.attention));
  __syncthreads();
  const int warp = ptx::warp_uniform(static_cast<int>(threadIdx.x) / 32);
  if (warp >= Tile::kProducerWarps) {
    ptx::setmaxnreg_inc<Tile::kConsumerRegisters>();
    PrefillConsumer<T, Tile>(params, shared, (warp - Tile::kProducerWarps) / 4).run();
  } else if (warp >= Tile::kConvertWarps) {
    ptx::setmaxnreg_dec<Tile::kProducerRegisters>();
    const int producer = warp - Tile::kConvertWarps;
    const int first_of_queries = by_rows ? Tile::kRowWarps : Tile::kLoadWarps;
    const int query_warps = by_rows && Tile::kMayQueryAlone ? 1 : Tile::kQueryWarps;
    if (producer >= first_of_queries) {
      if (producer < first_of_queries + query_warps)
        PrefillScheduler<Tile, PrefillShared<Tile>>(params, shared, producer - first_of_queries, query_warps)
            .run();
    } else if (by_rows) {
      if constexpr (Tile::kMayLoadRows)
        PrefillRowProducer<Tile, PrefillShared<Tile>>(params, shared, producer).run();
    } else if (producer == 0) {
      load_keys_or_values<Tile, false>(params, shared);
    } else {
      load_keys_or_values<Tile, true>(params, shared);
    }
  } else if constexpr (Tile::kConverts) {
    ptx::setmaxnreg_dec<Tile::kConvertRegisters>();
    if (warp < Tile::kWarpsOfOperand)
      PrefillConverter<kKv, Tile, false>(shared, warp).run();
    else
      PrefillConverter<kKv, Tile, true>(shared, warp - Tile::kWarpsOfOperand).run();
  }
}

template <class T, Element kKv, class Tile>
void launch_prefill_tile(const PrefillParams& params, int num_ctas, void* stream) {
  constexpr int kSharedBytes = PrefillShared<Tile>::kBytes;
  constexpr auto kKernel = prefill_kernel<T, kKv, Tile>;
  allow_shared_memory<kKernel>(kSharedBytes, "attention: shared memory");
  launch_dependent<PrefillParams>(kKernel, dim3(static_cast<unsigned>(num_ctas)), Tile::kThreads,
                                  kSharedBytes, stream, params, "attention");
}

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV, bool kDescales>
void launch_converting_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using enum PrefillKind;
  if (params.attention.logit_cap > 0.0f)
    launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, true, kMany, true, kDescales>>(
        params, num_ctas, stream);
  else
    launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, true, kMany, false, kDescales>>(
        params, num_ctas, stream);
}

// Where K and V of 16 bits come row by row. Defined in prefill_by_rows.cuh, for a file of its own: in one
// with the other kernels ptxas spills registers of this.
template <class T, int kHeadDimQk, int kHeadDimV>
void launch_prefill_by_rows(const PrefillParams& params, int num_ctas, void* stream);

template <class T, Element kKv, int kHeadDimQk, int kHeadDimV>
void launch_prefill(const PrefillParams& params, int num_ctas, void* stream) {
  using enum PrefillKind;
  if constexpr (is_fp8(kKv)) {
    if (has_descales(params.attention))
      launch_converting_prefill<T, kKv, kHeadDimQk, kHeadDimV, true>(params, num_ctas, stream);
    else
      launch_converting_prefill<T, kKv, kHeadDimQk, kHeadDimV, false>(params, num_ctas, stream);
  } else {
    const PlanView& plan = params.attention.plan;
    if constexpr (has_fixed_splits({kHeadDimQk, kHeadDimV}))
      if (plan.split_bank != nullptr)
        return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kFixedSplits>>(
            params, num_ctas, stream);
    if constexpr (may_verify(kHeadDimV, false))
      if (verifies(plan))
        return launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kVerify>>(
            params, num_ctas, stream);
    if (params.attention.logit_cap > 0.0f)
      launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false>>(params, num_ctas, stream);
    else if (params.box_rows == 0)
      launch_prefill_by_rows<T, kHeadDimQk, kHeadDimV>(params, num_ctas, stream);
    else
      launch_prefill_tile<T, kKv, PrefillTile<kHeadDimQk, kHeadDimV, false, kMany, false>>(params, num_ctas,
                                                                                           stream);
  }
}

}  // namespace attend::kernels::cuda::sm90
