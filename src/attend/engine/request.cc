#include "attend/engine/request.h"

#include "attend/base/error.h"

namespace attend {

void check(const SamplingParams& params) {
  require(params.max_new_tokens >= 1, "max_new_tokens ", params.max_new_tokens, ": at least 1");
  require(params.temperature >= 0.0f && params.temperature <= 100.0f, "temperature ", params.temperature,
          ": 0 (greedy) to 100");
  require(params.top_k >= 0, "top_k ", params.top_k, ": at least 1, or 0 for all");
  require(params.top_p > 0.0f && params.top_p <= 1.0f, "top_p ", params.top_p, ": above 0, at most 1");
  require(params.min_p >= 0.0f && params.min_p <= 1.0f, "min_p ", params.min_p, ": 0 to 1");
  for (const std::string& stop : params.stop)
    require(!stop.empty(), "stop: an empty string would stop at once");
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

kernels::SamplingRule Request::sampling_rule() const {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .seed = seed,
          .step = static_cast<uint64_t>(num_output())};
}

}  // namespace attend
