// The numbers that a bench is called with.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace attend::bench {

// argv[1] and on, or `otherwise` where there is none.
inline std::vector<int64_t> counts_of(int argc, char** argv, std::vector<int64_t> otherwise) {
  if (argc < 2) return otherwise;
  std::vector<int64_t> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::atoll(argv[i]));
  return counts;
}

}  // namespace attend::bench
