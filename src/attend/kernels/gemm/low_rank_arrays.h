// Arrays that describe the adapters of a step on a GPU (low_rank.h): plain structs, also for device code.
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
namespace attend::kernels {

inline constexpr int kMaxAdapterRank = 256;

// Tokens with one adapter.
struct LowRankSegment {
  const void* table;     // LowRankAdapter::table; null: these tokens have no adapter
  int32_t first, count;  // in LowRankArrays::tokens; also the rows of their A x
};
struct LowRankHeader {
  float* products;       // scratch for A x: [tokens with an adapter, row_floats]
  int32_t row_floats;    // at least that of each adapter, a multiple of 4
  int32_t num_segments;  // of tokens with an adapter
  // Also counts the segments of tokens without one, which follow; equal to num_segments unless they are
  // listed.
  int32_t num_all_segments;
  int32_t unused = 0;
};
// Arrays of a step in the memory of a GPU. Kernels read all that differs between steps from it, so a CUDA
// graph serves any adapters.
struct LowRankArrays {
  const LowRankHeader* header = nullptr;
  const LowRankSegment* segments = nullptr;
  const int32_t* tokens = nullptr;  // those of each segment
  int32_t max_segments = 0;         // at least header->num_all_segments
  int32_t segment_tokens = 0;       // largest number of tokens of a segment: low_rank_segment_tokens()
  bool lists_all = false;           // every token of the step is in a segment
};

}  // namespace attend::kernels
#pragma GCC visibility pop
