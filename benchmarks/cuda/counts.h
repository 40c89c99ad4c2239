// Numeric arguments of a bench.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace attend::bench {

// Returns argv[1] and following, or `otherwise` without arguments.
inline std::vector<int64_t> parse_counts(int argc, char** argv, std::vector<int64_t> otherwise) {
  if (argc < 2) return otherwise;
  std::vector<int64_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::atoll(argv[i]));
  return counts;
}

}  // namespace attend::bench
