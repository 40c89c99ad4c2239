#include "attend/engine/engine_metrics.h"

#include <limits>
#include <numeric>

namespace attend {

int64_t Histogram::count() const { return std::accumulate(buckets.begin(), buckets.end(), int64_t{0}); }

double Histogram::quantile(double share) const {
  const double target = share * static_cast<double>(count());
  int64_t num_below = 0;
  for (size_t i = 0; i < upper_bounds.size(); ++i) {
    num_below += buckets[i];
    if (num_below > 0 && static_cast<double>(num_below) >= target) return upper_bounds[i];
  }
  return num_below == count() ? 0.0 : std::numeric_limits<double>::infinity();
}

double EngineMetrics::cache_hit_rate() const {
  return num_prompt_tokens == 0
             ? 0.0
             : static_cast<double>(num_cached_prompt_tokens) / static_cast<double>(num_prompt_tokens);
}

}  // namespace attend
