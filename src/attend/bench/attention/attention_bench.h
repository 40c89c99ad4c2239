// Benchmark `attend bench attention`: CPU attention compared with the machine's limits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attend/bench/report.h"

namespace attend::bench {

struct AttentionBenchOptions {
  std::string filter;             // only cases with a name that contains it
  double seconds_per_case = 0.6;  // repeats stop then, but there are at least kMinRepeats
  std::vector<int> threads = {};  // thread counts; empty: 1 and all
  // Called with the report so far after each case.
  std::function<void(const Report&)> on_case = {};
};

// The limit of a case is the larger of two times: reading its K/V at the rate of the read probe, and its
// operations at the peak of the fastest vector arithmetic. If the latter is the bound and the CPU has AMX,
// the peak of AMX's bfloat16 tiles is reported too: attention with tiles can exceed 100 % of the first peak,
// not of the second. Every repeat runs both probes and the case in sequence, so that other load affects them
// equally. Throws Error(kInvalidArgument) for a filter without cases, and Error(kOutOfMemory) if K/V larger
// than the caches do not fit in memory.
Report bench_attention(const AttentionBenchOptions& options);

}  // namespace attend::bench
