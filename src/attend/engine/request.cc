#include "attend/engine/request.h"

#include <algorithm>

namespace attend {

kernels::SamplingRule Request::sampling_rule() const {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = seed,
          .step = static_cast<uint64_t>(num_output())};
}

int Request::encoded_end() const {
  if (!images) return num_tokens();
  for (const ImageRun& run : images->runs) {
    const bool is_encoded = run.image < encoded.size() && !encoded[run.image].view().empty();
    if (run.end_token() > num_computed && !is_encoded) return std::max(num_computed, run.first_token);
  }
  return num_tokens();
}

View<const int32_t> prefix_keys(const Request& request) {
  return request.images ? request.keys : request.tokens;
}

}  // namespace attend
