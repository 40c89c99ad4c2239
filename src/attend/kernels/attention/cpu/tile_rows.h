// TileRows: where the K and V of one tile of keys lie.
#pragma once

#include <cstdint>

#include "attend/kernels/attention/cpu/attention_problem.h"
#include "attend/kernels/attention/cpu/tile_scratch.h"

namespace attend::kernels::cpu {

struct TileRows {
  uint64_t present = 0;  // bit i: key i of the tile is wanted; the rows of all others are null
  const char* k[kTileKeys];
  const char* v[kTileKeys];
};

// The rows of the keys first .. first + 63 that `present` names by bit. No table entry of another key is
// read.
void locate_rows(const AttentionProblem& problem, int request, int kv_head, int32_t first, uint64_t present,
                 TileRows& rows);

// Converts scaled latent rows to bfloat16. `memory`: [kTileKeys, stride]; `converted` are those rows of it.
void convert_rows(const TileRows& rows, uint16_t* memory, int stride, TileRows& converted);

// Asks for the beginning of every run of rows that will be read next. A hardware prefetcher follows a run
// from there up to the end of its 4 KiB, and it has more reads under way than a thread that asks for every
// line (docs/kernels/attention-cpu.md has the figures).
void prefetch_runs(const AttentionProblem& problem, const TileRows& rows);

// The same ahead of asking for every line: the hardware prefetcher then begins on all runs early. Does
// nothing where pages are too short for it to follow.
void prefetch_run_starts(const AttentionProblem& problem, const TileRows& rows);

}  // namespace attend::kernels::cpu
