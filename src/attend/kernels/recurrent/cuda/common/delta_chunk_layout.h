// Gated delta rule in chunks of kDeltaChunk tokens, and the workspace of its kernels.
//
// A chunk has inputs k, q, v, gates beta and running sums G of the logarithms of the decays. With
// E[i][j] = exp(G[i] - G[j]) and the state S before it (arXiv 2412.06464, section 3.3):
//   M[i][j] = beta[i] E[i][j] k[i] k[j] for j < i, else 0;  T = (I + M)^-1
//   X[i] = beta[i] (v[i] - exp(G[i]) S k[i]);  V = T X
//   out[i] = exp(G[i]) S q[i] + sum over j <= i of A[i][j] V[j],  A[i][j] = E[i][j] q[i] k[j]
//   S = exp(G[last]) S + sum over j of exp(G[last] - G[j]) V[j] k[j]^T
// T and A do not depend on S: one kernel computes them for all chunks, and another one walks the chunks of
// each request. Rows without a token have k = q = v = beta = 0 and no decay.
//
// With decays per channel (arXiv 2510.26692), G and E are vectors of the channels: E[i][j] scales the
// elements of a dot product, exp(G[i]) those of k[i] and q[i], and exp(G[last] - G[j]) those of k[j]. The
// workspace also has these scaled rows, which replace k and q in the equations of X, out and S.
#pragma once

#include <cstdint>

#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {

// Positions per chunk, and tokens per chunk at least: a request with fewer tokens for each of its chunks uses
// single steps, so that a step of n tokens has at most n / kDeltaTokensPerSlot chunks.
inline constexpr int kDeltaChunk = 64, kDeltaTokensPerSlot = kMinDeltaChunkTokens;

// Workspace of a chunk and value head: T and A in the function's dtype, and factors of its tokens.
//
// The 10 blocks of 16 x 16 on and below the diagonal, row by row, each in the order of operand B of
// mma.m16n8k16 with column i of B in row i: 16 bytes per lane.
inline constexpr int kDeltaBlockBytes = 512, kDeltaMatrixBytes = 10 * kDeltaBlockBytes;
// Arrays of kDeltaChunk floats after the matrices. kScaled factors include the norms of k and q.
enum DeltaFactor : int {
  kBeta,
  kScaledBeta,   // beta exp(G), times the norm of k
  kScaledQuery,  // exp(G), times the norm and the scale of q
  kScaledKey,    // exp(G[last] - G), times the norm of k
  kLogDecay,     // G
  kKeyNorm,
  kNumDeltaFactors
};
inline constexpr int kDeltaSlotBytes =
    2 * kDeltaMatrixBytes + kNumDeltaFactors * kDeltaChunk * static_cast<int>(sizeof(float));

// With decays per channel, the slot continues with exp(G[last]), a float per channel, and three arrays
// [kDeltaChunk, dim_k] in the function's dtype: k and q times exp(G), and k times exp(G[last] - G), with the
// norms of k and q.
constexpr int delta_rows_offset(int dim_k) {
  return kDeltaSlotBytes + dim_k * static_cast<int>(sizeof(float));
}
// Returns the bytes of workspace of a chunk and value head.
constexpr int delta_slot_bytes(int dim_k, bool decays_per_channel) {
  constexpr int kElementBytes = 2;
  return decays_per_channel ? delta_rows_offset(dim_k) + 3 * kDeltaChunk * dim_k * kElementBytes
                            : kDeltaSlotBytes;
}
// The same for kernels, which cannot call these functions.
template <int kDimK>
inline constexpr int kDeltaRowsOffset = delta_rows_offset(kDimK);
template <int kDimK, bool kPerChannel>
inline constexpr int kDeltaSlotBytesOf = delta_slot_bytes(kDimK, kPerChannel);

}  // namespace attend::kernels::cuda
