// GenerationJob: what a client asks to be generated, read from the JSON of any endpoint and checked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/chat_answer.h"
#include "attend/serve/protocols/grammar_fields.h"

namespace attend::serve {

// A text, or token ids.
using PromptInput = std::variant<std::string, std::vector<int32_t>>;

// What a request that names no sampling gets: generation_config.json's, which may say greedy; without that
// file, OpenAI's.
struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;
  float repetition_penalty = 1.0f;

  static SamplingDefaults read(const std::filesystem::path& model_path);
};

struct GenerationJob {
  std::string model;  // empty: not named
  std::string rid;    // the client's own id; empty: none
  // Prefixes are shared with requests of the same salt alone.
  std::string cache_salt;
  int priority = 0;
  // Each is completed params.n times.
  std::vector<PromptInput> prompts;
  bool is_batch = false;  // /generate: the prompts came as a list, and so does the answer
  // Chat: what the template sees, a JSON object with "messages". `prompts` is empty until it has been
  // applied.
  std::string variables;
  bool add_generation_prompt = true;
  std::string continued;  // chat: how the answer begins, which the prompt says already
  SamplingParams params;
  std::optional<RequestedGrammar> grammar;
  std::shared_ptr<TokenMask> mask;     // of it, once it is compiled; each prompt gets one of its own
  std::optional<AnswerFormat> answer;  // chat: what the answer is read as; none: text
  bool has_max_tokens = false;         // else up to the end of the context (chat)
  bool stream = false;
  bool include_usage = false;     // an extra chunk at the end
  bool continuous_usage = false;  // in each chunk
  bool echo = false;
  // /generate: logprobs of the prompt from this token on, and whether they name tokens by text too.
  std::optional<int> logprob_start;
  bool logprob_text = false;
  std::vector<std::string> ignored;  // fields that nobody knows
};

}  // namespace attend::serve
