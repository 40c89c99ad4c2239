// Request: one sequence on its way through the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/base/ids.h"
#include "attend/kernels/sampling/sampling.h"

#pragma GCC visibility push(default)
namespace attend {

// What the caller asks of one completion.
struct SamplingParams {
  int max_new_tokens = 128;
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::optional<uint64_t> seed = {};         // not given: derived from the engine's seed and the request's id
  std::vector<int32_t> stop_token_ids = {};  // besides the model's end-of-sequence tokens
  std::vector<std::string> stop = {};        // stop strings; not part of the text
  bool ignore_eos = false;
};

// Throws Error(kInvalidArgument) naming the parameter and what it accepts.
void check(const SamplingParams& params);

enum class FinishReason : uint8_t {
  kNone,    // not finished
  kStop,    // an end-of-sequence or stop token, or a stop string
  kLength,  // max_new_tokens, or the context is full
  kError,   // the model's logits for it were NaN: activations or K/V beyond the range of their dtype
};
// "stop", "length", "error"; "" while not finished.
std::string_view to_string(FinishReason reason);

using RequestId = int64_t;
using Clock = std::chrono::steady_clock;

struct RequestTimes {
  Clock::time_point submitted;
  Clock::time_point admitted;  // when its pages were taken, the last time if it was preempted
  Clock::time_point first_token;
  Clock::time_point finished;
};

// Owned by the engine's thread.
//
//   tokens  [0, num_prompt)              the prompt
//           [num_prompt, tokens.size())  what was generated
//           [0, num_computed)            K/V is in the pool
//           [num_computed, size)         to compute: one token while decoding, more while prefilling
// slots are allocated for [0, num_slots); num_computed <= num_slots.
struct Request {
  RequestId id = 0;
  std::vector<int32_t> tokens;
  int num_prompt = 0;
  int num_computed = 0;
  int num_slots = 0;
  RequestRow row = kPaddingRow;  // kPaddingRow: not admitted
  SamplingParams params;
  uint64_t seed = 0;
  FinishReason finish_reason = FinishReason::kNone;
  int num_preemptions = 0;
  RequestTimes times;

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_output() const { return num_tokens() - num_prompt; }
  int num_to_compute() const { return num_tokens() - num_computed; }
  bool decoding() const { return num_computed >= num_prompt && num_to_compute() == 1; }
  kernels::SamplingRule sampling_rule() const;
};

}  // namespace attend
#pragma GCC visibility pop
