// `attend bench attention`: attention on the CPU beside what the machine can do at most.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "attend/bench/report.h"

namespace attend::bench {

struct AttentionBenchOptions {
  std::string filter;             // cases whose name contains it
  double seconds_per_case = 0.6;  // repeats stop then, but there are at least kMinRepeats
  std::vector<int> threads = {};  // thread counts; empty: 1 and all
  // Told of the report so far, each time that a case is there.
  std::function<void(const Report&)> on_case = {};
};

// The limit of a case is the faster of two times it cannot beat: reading its K/V as fast as the read probe
// reads the same bytes, and its operations at the peak of the fastest vector arithmetic. Where that is what
// bounds it and the CPU has AMX, the peak of AMX's bfloat16 tiles stands beside it: attention with tiles can
// exceed 100 % of the first, not of the second. Every repeat runs both probes and the case one after another,
// so that a busy machine disturbs them alike. Throws Error(kInvalidArgument) for a filter without cases, and
// Error(kOutOfMemory) when K/V beyond the caches does not fit.
Report bench_attention(const AttentionBenchOptions& options);

}  // namespace attend::bench
