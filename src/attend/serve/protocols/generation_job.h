// GenerationJob: a request to generate, read from the JSON of any endpoint and validated.
#pragma once

#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/chat_answer.h"
#include "attend/serve/protocols/fields/grammar_fields.h"

namespace attend::serve {

// Text or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

// Sampling of a request without sampling parameters: from generation_config.json, which may specify greedy,
// or OpenAI's defaults if that file is missing.
struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;
  float repetition_penalty = 1.0f;

  static SamplingDefaults read(const std::filesystem::path& model_path);
};

// Limit of the logprobs of one request: of its prompts' and completions' tokens, and of the likeliest tokens
// in their places.
inline constexpr size_t kMaxLogprobs = 4'000'000;

// Fields of Anthropic's API that its replies depend on.
struct MessageOptions {
  enum class Thinking {
    kShown,
    kOmitted,  // blocks have a signature only, which contains the text
    kHidden,   // no blocks
  };
  Thinking thinking = Thinking::kShown;
  bool has_cache_control = false;
  bool has_answer = true;  // false: only the prompt is computed
  bool wants_diagnostics = false;
};

struct ResponseRequest;

struct GenerationJob {
  std::string model;    // empty: not given
  std::string rid;      // the client's id; empty: none
  std::string adapter;  // name of a LoRA adapter: SGLang's lora_path, or that of `model`; empty: none
  // Prefixes are shared only among requests with the same salt.
  std::string cache_salt;
  int priority = 0;
  // Each prompt is completed params.n times.
  std::vector<PromptInput> prompts;
  bool is_batch = false;               // /generate: the prompts were a list, so the reply is a list
  bool add_special_tokens = true;      // to a prompt that is a text
  std::optional<int> truncate_prompt;  // only the last tokens of the prompt are used; -1: those that fit
  // Chat: variables of the template, a JSON object with "messages". `prompts` is empty until the template has
  // been applied.
  std::string variables;
  std::vector<std::string> images;  // files of the images in the messages, in their order
  bool add_generation_prompt = true;
  std::string continued;        // chat: content of the last message, which the model continues; empty: none
  bool drops_messages = false;  // chat: the oldest messages are dropped if the prompt exceeds the context
  SamplingParams params;
  std::optional<RequestedGrammar> grammar;
  std::shared_ptr<TokenMask> mask;  // mask of the grammar after it is compiled; each prompt gets its own copy
  std::optional<AnswerFormat> answer;  // chat: how the answer is parsed; none: as text
  bool has_max_tokens = false;         // otherwise up to the end of the context
  bool stream = false;
  bool include_usage = false;     // an extra chunk at the end
  bool continuous_usage = false;  // in each chunk
  bool echo = false;
  std::shared_ptr<ResponseRequest> response;  // /v1/responses: more fields of the request
  // /generate: first prompt token with logprobs, and whether logprobs include the tokens' text.
  std::optional<int> logprob_start;
  bool logprob_text = false;
  // /generate: whether replies contain the text, and whether each event of a stream has new output only.
  bool detokenize = true;
  bool incremental = false;
  MessageOptions message = {};
  std::vector<std::string> ignored;  // unknown fields, and fields without effect on this model
};

// Returns the maximum number of prompt tokens for truncate_prompt_tokens: -1 leaves one token for the answer.
inline int max_prompt_tokens(int truncate_prompt, int context_length) {
  return truncate_prompt < 0 ? context_length - 1 : truncate_prompt;
}

// Drops tokens at the start.
inline void truncate_prompt(std::vector<int32_t>& ids, int max_tokens) {
  if (std::ssize(ids) > max_tokens) ids.erase(ids.begin(), ids.end() - max_tokens);
}

}  // namespace attend::serve
