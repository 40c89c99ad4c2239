#include "attend/engine/generation_request.h"

#include <cmath>
#include <unordered_set>

#include "attend/base/error.h"
#include "attend/kernels/sampling/logprobs.h"

namespace attend {
namespace {

constexpr int kMaxCompletions = 128;  // limit of OpenAI's API

// The set avoids quadratic time: a request may bias every token of the vocabulary.
void check_logit_bias(const std::vector<std::pair<int32_t, float>>& biases) {
  std::unordered_set<int32_t> seen;
  for (const auto& [id, bias] : biases) {
    require(std::abs(bias) <= 100.0f, "logit_bias of token ", id, ": ", bias, ": -100 to 100");
    require(seen.insert(id).second, "logit_bias: token ", id, " occurs twice");
  }
}

}  // namespace

void check(const SamplingParams& params) {
  require(params.max_new_tokens >= 0, "max_new_tokens ", params.max_new_tokens, ": at least 0");
  require(params.temperature >= 0.0f && params.temperature <= 100.0f, "temperature ", params.temperature,
          ": 0 (greedy) to 100");
  require(params.top_k >= 0, "top_k ", params.top_k, ": at least 1, or 0 for all");
  require(params.top_p > 0.0f && params.top_p <= 1.0f, "top_p ", params.top_p, ": above 0, at most 1");
  require(params.min_p >= 0.0f && params.min_p <= 1.0f, "min_p ", params.min_p, ": 0 to 1");
  const auto check_logprobs = [](std::string_view name, std::optional<int> number) {
    require(!number || (*number >= 0 && *number <= kernels::kMaxTopLogprobs), name, " ", number.value_or(0),
            ": 0 to ", kernels::kMaxTopLogprobs);
  };
  require(params.repetition_penalty > 0.0f && params.repetition_penalty <= 2.0f, "repetition_penalty ",
          params.repetition_penalty, ": above 0, at most 2 (1: none)");
  require(std::abs(params.frequency_penalty) <= 2.0f, "frequency_penalty ", params.frequency_penalty,
          ": -2 to 2");
  require(std::abs(params.presence_penalty) <= 2.0f, "presence_penalty ", params.presence_penalty,
          ": -2 to 2");
  check_logit_bias(params.logit_bias);
  require(params.min_tokens >= 0 && params.min_tokens <= params.max_new_tokens, "min_tokens ",
          params.min_tokens, ": 0 to max_new_tokens, ", params.max_new_tokens);
  require(params.n >= 1 && params.n <= kMaxCompletions, "n ", params.n, ": 1 to ", kMaxCompletions);
  check_logprobs("logprobs", params.logprobs);
  check_logprobs("prompt_logprobs", params.prompt_logprobs);
  for (const std::string& stop : params.stop)
    require(!stop.empty(), "stop: an empty string; expected at least one character");
}

}  // namespace attend
