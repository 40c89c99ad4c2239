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

// Bytes of workspace per token and value head.
inline constexpr int kDeltaWorkspaceBytes = kDeltaSlotBytes / kDeltaTokensPerSlot;
static_assert(kDeltaSlotBytes % kDeltaTokensPerSlot == 0);

}  // namespace attend::kernels::cuda
