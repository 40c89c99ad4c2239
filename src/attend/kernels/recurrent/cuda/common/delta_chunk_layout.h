// Chunks of the chunk form of the gated delta rule, and their workspace.
#pragma once

#include <cstdint>

namespace attend::kernels::cuda {

// Positions per chunk, and tokens per chunk at least: a request with fewer tokens for each of its chunks uses
// single steps, so that a step of n tokens has at most n / kDeltaTokensPerSlot chunks.
inline constexpr int kDeltaChunk = 64, kDeltaTokensPerSlot = 32;

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
