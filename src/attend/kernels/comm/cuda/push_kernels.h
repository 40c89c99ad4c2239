// Parameters and launches of the kernels that push data to the memory of other GPUs.
#pragma once

#include <cstdint>

#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

inline constexpr int kMaxPeerRanks = 8;

// State that the kernels of a rank share. Each rank has two phases of one slot per rank: other ranks write to
// theirs, and the owner resets what it has read to kEmptyWord. A rank can be one operation ahead of another
// one, which still reads the other phase.
struct PeerSlots {
  std::byte* slots[kMaxPeerRanks];  // of each rank, as this device addresses them: [2, num_ranks, slot_bytes]
  int64_t slot_bytes;
  int rank, num_ranks;
  uint32_t* epoch;     // number of operations of this rank, on its device
  uint32_t* num_done;  // CTAs that have finished the operation
  uint32_t* stop;      // in host memory: 1 ends all waits, of all ranks
  uint64_t timeout_ns;
};
// Never part of a payload: -0 in float32, and +0 before -0 in 16 bits. Payloads have +0 instead of -0.
inline constexpr uint32_t kEmptyWord = 0x80000000u;

struct PushSumParams {
  PeerSlots peers;
  void* x;          // [num_vectors] of 16 bytes: this rank's addend
  Element element;  // of x and sum: f32, f16 or bf16
  int64_t num_vectors;
  void*
      sum;  // null: x receives the sum of all ranks. Otherwise sum += it, rounded once, and x is overwritten
  DeviceVector weight;  // [dim]: scaled = sum * weight, rounded once; null: no deferred norm
  void* scaled;         // may be x
  float* squares;       // [num_rows, dim / 16]
  int64_t dim;
};
void launch_push_sum(const PushSumParams& params, void* stream);

// Words of 4 bytes, [num_rows, row_stride]: each rank has the columns [bounds[rank], bounds[rank + 1]).
struct PushColumnsParams {
  PeerSlots peers;
  uint32_t* x;
  bool half;  // words are two elements of 16 bits
  int64_t num_rows, row_stride;
  int64_t bounds[kMaxPeerRanks + 1];
};
void launch_push_columns(const PushColumnsParams& params, void* stream);

// words[0, count) = kEmptyWord.
void launch_fill_empty(uint32_t* words, int64_t count, void* stream);

}  // namespace attend::kernels::cuda
