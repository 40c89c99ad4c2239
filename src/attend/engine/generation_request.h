// GenerationRequest and PoolingRequest: requests that a caller submits to the engine.
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

// Sampling of a completion's tokens, and its end.
struct SamplingParams {
  int max_new_tokens = 128;  // 0: the prompt is computed, for its logprobs or the prefix cache
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  // Seed and token index determine a token, independent of other requests. Completion i of a prompt uses seed
  // + i, as in vLLM. Not given: derived from the engine's seed and the request's id.
  std::optional<uint64_t> seed = {};

  // Changes of a token's logit x before temperature and filters, in this order:
  //   repetition_penalty r, if the token occurs in prompt or output: x / r where x > 0, x * r elsewhere
  //   (Keskar et
  //     al.: CTRL, 2019; as Hugging Face, vLLM and SGLang)
  //   frequency_penalty f and presence_penalty p, if the token occurs c > 0 times in the output: x - c f - p
  //     (OpenAI API reference, "Frequency and presence penalties")
  //   logit_bias: x + bias
  //   min_tokens: before the output has this number of tokens, tokens that end it are excluded, unless a
  //     token mask allows no others, and stop strings have no effect
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // token ids without duplicates
  int min_tokens = 0;

  std::vector<int32_t> stop_token_ids = {};  // in addition to the model's end-of-sequence tokens
  std::vector<std::string> stop = {};        // stop strings
  bool include_stop = false;                 // keep the stop string at the end of the text
  bool ignore_eos = false;
  bool skip_special_tokens = true;  // omit them from the text

  int n = 1;          // number of completions of the prompt
  bool echo = false;  // prepend the prompt to the text
  // The caller shows Tokenizer::decode_prefix(prompt) before the text. The text then has the characters that
  // the prompt leaves incomplete. Otherwise it is what decode(prompt + new tokens) has after decode(prompt).
  bool follows_echo = false;

  // Log probabilities of each new token, and of this number of most likely tokens at its position, at most
  // 20. 0: only of the token; not given: none. They are the model's: from unchanged logits at temperature 1
  // (as vLLM's raw_logprobs).
  std::optional<int> logprobs = {};
  std::optional<int> prompt_logprobs = {};  // the same for the prompt's tokens, without the first
};

// Throws Error(kInvalidArgument) with the parameter's name and its accepted values.
void check(const SamplingParams& params);

// TokenMask: the tokens that are allowed next in one request. Grammars constrain sampling through it.
//
// Called on the engine's thread. An exception ends its request with FinishReason::kError. A mask may be
// computed on another thread after accept(). Until it is ready, its request is in no step, and others
// continue.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Called before each token: sets bit v % 32 of word v / 32 for every allowed token v, and clears the
  // others. words.size() is ceil(vocab_size / 32). Returns false, without valid words, if all tokens are
  // allowed.
  virtual bool fill(std::span<uint32_t> words) = 0;
  // Called after each token, with the sampled one.
  virtual void accept(int32_t token_id) = 0;
  // Returns false while the mask is being computed, so that fill() would wait for it.
  virtual bool ready() { return true; }
  // Waits for ready(), for `timeout` at most, and returns it.
  virtual bool wait_for(std::chrono::microseconds /*timeout*/) { return ready(); }
  // Returns a new mask in the initial state, for another completion of the same prompt.
  virtual std::shared_ptr<TokenMask> fork() const = 0;

  // Speculative decoding: prepares the masks of the tokens after `tokens`, which may follow. They are not
  // accepted: accept() is called later for the tokens that do follow. Returns the number of first tokens
  // after which fill_after() returns masks; the others are not drafted. Called while ready(); a second call
  // replaces the tokens. With the default 0, the request decodes without drafts.
  virtual size_t draft(std::span<const int32_t> /*tokens*/) { return 0; }
  // As fill(), for the token after the first `num_tokens` tokens of draft(), at least one and at most the
  // number that draft() returned. If one of these tokens is not allowed, the result is not used.
  virtual bool fill_after(size_t /*num_tokens*/, std::span<uint32_t> words) { return fill(words); }
};

struct GenerationRequest {
  // Text, which is encoded with the model's tokenizer, special tokens added; or token ids.
  std::variant<std::string, std::vector<int32_t>> prompt;
  // JPEG, PNG or WebP files: the i-th image belongs to the i-th placeholder (ModelSpec::image_token_id) of
  // the prompt. The placeholder is repeated once per token of the image.
  std::vector<std::string> images = {};
  SamplingParams params = {};
  std::string adapter = {};              // name of a LoRA adapter; empty: none
  std::shared_ptr<TokenMask> mask = {};  // null: all tokens are allowed
  // Prefixes are shared only with requests of the same salt.
  std::string cache_salt = {};
  // With SchedulePolicy::kPriority, requests with a higher priority go first.
  int priority = 0;
  // Time at which the request is aborted, waiting or running.
  std::optional<Clock::time_point> deadline = {};
  // For benchmarks of steps after a long prefix: number of prompt tokens, from the first on and at most all
  // but the last, that are not computed. Their K/V are the pool's contents. Not allowed with a prefix cache,
  // which would share these pages, or with prompt_logprobs.
  int num_skipped = 0;
};

// Inputs to pool into vectors, for an engine with EngineConfig::pooling. Each input has its own output,
// RequestOutput::vector, with the input's position as RequestOutput::index. An input is computed in one step.
struct PoolingRequest {
  // Text, which is encoded with the model's tokenizer, special tokens added; or token ids.
  std::vector<std::variant<std::string, std::vector<int32_t>>> inputs;
  // Types of each input's tokens, for models with several (BERT). Empty: all are 0; so is an empty element.
  std::vector<std::vector<int32_t>> token_types = {};
  int priority = 0;                                // as in GenerationRequest
  std::optional<Clock::time_point> deadline = {};  // as in GenerationRequest
};

}  // namespace attend
#pragma GCC visibility pop
