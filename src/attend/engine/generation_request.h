// GenerationRequest and PoolingRequest: what a caller asks of the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attend/engine/output/request_output.h"

#pragma GCC visibility push(default)
namespace attend {

// How the tokens of a completion are chosen, and where it ends.
struct SamplingParams {
  int max_new_tokens = 128;
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  // With a token's index it decides the token, whatever else runs. Completion i of a prompt takes seed + i,
  // as vLLM has it. Not given: derived from the engine's seed and the request's id.
  std::optional<uint64_t> seed = {};

  // What becomes of a token's logit before temperature and filters, in this order:
  //   repetition_penalty r, if it stands in prompt or output: x / r where x > 0, x * r elsewhere (Keskar et
  //     al.: CTRL, 2019; as Hugging Face, vLLM and SGLang)
  //   frequency_penalty f and presence_penalty p, if it stands c > 0 times in the output: x - c f - p (OpenAI
  //     API reference, "Frequency and presence penalties")
  //   logit_bias: x + bias
  //   min_tokens: until the output has so many, tokens that would end it are not chosen, unless a token mask
  //     leaves no others, and stop strings not looked for
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token ids, each once
  int min_tokens = 0;

  std::vector<int32_t> stop_token_ids = {};  // besides the model's end-of-sequence tokens
  std::vector<std::string> stop = {};        // stop strings
  bool include_stop = false;                 // the text ends with the stop string, not before it
  bool ignore_eos = false;
  bool skip_special_tokens = true;  // leave them out of the text

  int n = 1;          // completions of the prompt
  bool echo = false;  // the text begins with the prompt's

  // Logarithms of probabilities, of each new token and of as many of the likeliest in its place, at most 20;
  // 0: of the token alone; not given: none. They are the model's: of its logits before all of the above, at
  // temperature 1 (as vLLM's raw_logprobs).
  std::optional<int> logprobs = {};
  std::optional<int> prompt_logprobs = {};  // the same of the prompt's tokens, the first excepted
};

// Throws Error(kInvalidArgument) naming the parameter and what it accepts.
void check(const SamplingParams& params);

// TokenMask: the tokens that may come next in one request. Grammars take part in sampling through it.
//
// Called on the engine's thread. What throws ends the request that it belongs to, with FinishReason::kError.
// A mask may be computed elsewhere after accept(). Until it is ready, its request takes part in no step, and
// others continue.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Before each token: sets bit v % 32 of word v / 32 for every token v that may come, and clears the others;
  // `words` has as many as the vocabulary takes. False: every token may come, whatever the words.
  virtual bool fill(std::span<uint32_t> words) = 0;
  // After each token: the one that was chosen.
  virtual void accept(int32_t token_id) = 0;
  // Returns false while the mask is being computed, so that fill() would wait for it.
  virtual bool ready() { return true; }
  // Waits for ready(), for `timeout` at most, and returns it.
  virtual bool wait_for(std::chrono::microseconds /*timeout*/) { return ready(); }
  // A mask of its own for another completion of the same prompt, from the beginning.
  virtual std::shared_ptr<TokenMask> fork() const = 0;
};

struct GenerationRequest {
  // Text, which is encoded with the model's tokenizer, special tokens added; or token ids.
  std::variant<std::string, std::vector<int32_t>> prompt;
  SamplingParams params = {};
  std::shared_ptr<TokenMask> mask = {};  // null: every token may come
  // Prefixes are shared with requests of the same salt alone.
  std::string cache_salt = {};
  // Higher ones go first where the engine is told to heed priorities.
  int priority = 0;
  // Ends, waiting or running, when this has passed.
  std::optional<Clock::time_point> deadline = {};
  // For benchmarks of what comes behind others: nothing is computed for so many of the prompt's tokens, from
  // the first on and at most all but the last; their K/V are what the pool holds. Not with a prefix cache,
  // which would hand them on, nor with prompt_logprobs.
  int num_skipped = 0;
};

// Inputs whose vectors are wanted, of an engine that pools (EngineConfig::pooling). Each has an output of its
// own, RequestOutput::vector, with its place as RequestOutput::index. An input is computed in one step.
struct PoolingRequest {
  // Text, which is encoded with the model's tokenizer, special tokens added; or token ids.
  std::vector<std::variant<std::string, std::vector<int32_t>>> inputs;
  int priority = 0;                                // as of a GenerationRequest
  std::optional<Clock::time_point> deadline = {};  // likewise
};

}  // namespace attend
#pragma GCC visibility pop
