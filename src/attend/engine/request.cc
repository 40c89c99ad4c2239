#include "attend/engine/request.h"

namespace attend {

kernels::SamplingRule Request::sampling_rule() const {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = seed,
          .step = static_cast<uint64_t>(num_output())};
}

View<const int32_t> prefix_keys(const Request& request) {
  return request.images ? request.keys : request.tokens;
}

}  // namespace attend
