// TileRows: addresses of the K and V rows of one tile of keys.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"

namespace attend::kernels::cpu {

struct TileRows {
  uint64_t present = 0;  // bit i: key i of the tile is needed; rows of all others are null
  const char* k[kTileKeys];
  const char* v[kTileKeys];
};

// Locates the rows of the keys first .. first + 63 with a bit in `present`. Table entries of other keys are
// not read.
void locate_rows(const AttentionProblem& problem, int request, int kv_head, int32_t first, uint64_t present,
                 TileRows& rows);

// Converts scaled latent rows to bfloat16. `memory`: [kTileKeys, stride]; `converted`: the rows in it.
void convert_rows(const TileRows& rows, uint16_t* memory, int stride, TileRows& converted);

// Prefetches the start of every contiguous run of rows that will be read next. A hardware prefetcher follows
// a run from there to the end of its 4 KiB page, and has more reads in flight than a thread that prefetches
// every line (docs/kernels/attention-cpu.md has the figures).
void prefetch_runs(const AttentionProblem& problem, const TileRows& rows);

// Same, called before every line is prefetched, so that the hardware prefetcher starts on all runs early.
// Does nothing if pages are too short for the hardware prefetcher.
void prefetch_run_starts(const AttentionProblem& problem, const TileRows& rows);

}  // namespace attend::kernels::cpu
