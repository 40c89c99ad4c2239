// TokenGroups: the tokens of a step by their adapter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "attend/kernels/gemm/low_rank.h"

namespace attend::kernels {

// Tokens with one adapter that are multiplied together. They need not be neighbors: decoding requests with
// the same adapter are one group.
struct TokenGroup {
  const LowRankAdapter* adapter;
  int64_t first, count;  // in TokenGroups::tokens; also the rows of their A x
};

struct TokenGroups {
  std::vector<const AdapterRun*> runs;
  std::vector<int32_t> tokens;
  std::vector<TokenGroup> groups;

  View<const int32_t> tokens_of(const TokenGroup& group) const {
    return View<const int32_t>(tokens).subspan(static_cast<size_t>(group.first),
                                               static_cast<size_t>(group.count));
  }

  // Groups have at most `max_tokens`.
  void build(View<const AdapterRun> given, int64_t max_tokens) {
    runs.clear();
    tokens.clear();
    groups.clear();
    for (const AdapterRun& run : given) runs.push_back(&run);
    std::ranges::sort(runs, [](const AdapterRun* a, const AdapterRun* b) {
      if (a->adapter != b->adapter) return std::less<>()(a->adapter, b->adapter);
      return a->first_token < b->first_token;
    });
    for (const AdapterRun* const run : runs)
      for (int64_t i = 0; i < run->num_tokens; ++i) {
        const bool fits =
            !groups.empty() && groups.back().adapter == run->adapter && groups.back().count < max_tokens;
        if (!fits) groups.push_back({.adapter = run->adapter, .first = std::ssize(tokens), .count = 0});
        ++groups.back().count;
        tokens.push_back(static_cast<int32_t>(run->first_token + i));
      }
  }
  // Adds the other ones of the step's tokens, which have no adapter (null).
  void add_others(int64_t num_tokens, int64_t max_tokens) {
    std::vector<bool> listed(static_cast<size_t>(num_tokens));
    for (const int32_t token : tokens) listed[static_cast<size_t>(token)] = true;
    const size_t num_adapted = groups.size();
    for (size_t token = 0; token < listed.size(); ++token) {
      if (listed[token]) continue;
      if (groups.size() == num_adapted || groups.back().count == max_tokens)
        groups.push_back({.adapter = nullptr, .first = std::ssize(tokens), .count = 0});
      ++groups.back().count;
      tokens.push_back(static_cast<int32_t>(token));
    }
  }
};

}  // namespace attend::kernels
