// Store of new keys inside the attention kernel, before it reads them, which saves a launch.
#pragma once

#include "attend/kernels/attention/cuda/common/attention_params.h"
#include "attend/kernels/common/cuda/ptx/thread.cuh"

namespace attend::kernels::cuda::sm80 {

// Stores the request's new 16-bit keys and values of one head at positions [begin, end). Called by all
// threads, which may read the stored data after the next barrier. Every CTA that reads a key also stores it,
// so that no CTA waits for another.
template <int kThreads>
__device__ void store_new_keys(const AttentionParams& params, int request, int seqlen_kv, int head, int begin,
                               int end) {
  constexpr int kWarpSize = 32, kPieceElements = 8;
  const NewKeyRows& added = params.new_keys;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int first_new = seqlen_kv - params.batch.seqlen_new;
  const int k_pieces = params.head_dim_qk / kPieceElements;
  const int num_pieces = k_pieces + params.head_dim_v / kPieceElements;
  end = min(end, added.capacity);
#pragma unroll 1
  for (int p = max(begin, first_new) + warp; p < end; p += kThreads / kWarpSize) {
    const int page = find_page(params.index, request, p), in_page = p & (params.index.page_size - 1);
    const int token = request * params.batch.seqlen_new + p - first_new;
    const auto copy_piece = [&](const TokenRows& from, const PagedRows& to, int piece) {
      const int64_t read = token * from.token_stride + head * from.head_stride + piece * kPieceElements;
      int64_t write = ptx::mad_wide(page, static_cast<int32_t>(to.page_stride), piece * kPieceElements);
      write = ptx::mad_wide(in_page, static_cast<int32_t>(to.token_stride), write);
      write = ptx::mad_wide(head, static_cast<int32_t>(to.head_stride), write);
      // Attention only reads its cache elsewhere.
      auto* const cache = const_cast<char*>(static_cast<const char*>(to.data));
      *reinterpret_cast<uint4*>(cache + write * 2) =
          *reinterpret_cast<const uint4*>(static_cast<const char*>(from.data) + read * 2);
    };
#pragma unroll 1
    for (int piece = lane; piece < num_pieces; piece += kWarpSize)
      piece < k_pieces ? copy_piece(added.k, params.k, piece)
                       : copy_piece(added.v, params.v, piece - k_pieces);
  }
}

}  // namespace attend::kernels::cuda::sm80
