// Benchmark `attend bench model` with speculative decoding: rounds of drafts and their verification, compared
// with plain decode steps.
#pragma once

#include <functional>
#include <vector>

#include "attend/bench/report.h"
#include "attend/engine/engine_config.h"

namespace attend::bench {

struct SpeculationBenchOptions {
  EngineConfig engine;  // with a draft model; its sizes (context, pool, chunk, requests) are set by the bench
  std::vector<int> batch_sizes = {1};
  int depth = 128;        // context length before the timed steps
  int repetitions = 7;    // of each case
  int steps_per_run = 8;  // timed steps of a repetition
  EngineProgress progress = {};
  // Called with the report so far after each case.
  std::function<void(const Report&)> on_case = {};
};

// Two engines run in turns, so that both meet the same clocks and the same load of the machine: one without
// speculation, and one with it. Models with random weights accept no drafts, so that
// SpeculativeOptions::synthetic_accept_length sets the number of accepted tokens. Cases of each batch size:
//   decode            plain decode step, with overlap scheduling if the engine's config has it
//   verify            step of the target that verifies the drafts, until its tokens are known. Unit: decode
//                     steps
//   draft             all steps of the draft model of a round. Unit: decode steps
//   host work         of a round outside of both
//   round             tokens/s of rounds; the limit is plain decoding, with the range of the repetitions
// Times are medians of the repetitions. Throws Error(kInvalidArgument) for a config without a draft model,
// for a batch size or depth below 1 and a model with too short a context, and the errors of Engine.
Report bench_speculation(const SpeculationBenchOptions& options);

}  // namespace attend::bench
