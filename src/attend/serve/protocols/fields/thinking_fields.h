// Switch, effort and budget of the model's reasoning, independent of the API. Each function throws ApiError
// that names the field, also if two fields contradict each other.
#pragma once

#include <optional>
#include <string>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

struct ThinkingRequest {
  std::optional<bool> enabled;
  std::string enabled_field;
  std::optional<std::string> effort;
  std::string effort_field;
  std::optional<int> max_tokens;
  // Field that requires the budget; empty: it has no effect if the model's reasoning has no known format.
  std::string budget_field;
};

// Reads the object "reasoning" of OpenRouter and others: effort, max_tokens, enabled and exclude.
void read_reasoning_object(const Fields& inner, ThinkingRequest& request);
// Reads the budget in the fields of vLLM, SGLang, llama-server and others: thinking_budget,
// thinking_token_budget, max_thinking_tokens, reasoning_budget; -1: no limit.
void read_thinking_budget(const Fields& fields, ThinkingRequest& request);
// Reads the fields of a chat: reasoning_effort, reasoning, thinking, enable_thinking, and the budget.
ThinkingRequest read_chat_thinking(const Fields& fields);

// Sets the variables that the model's template reads, unless `variables` has them, and the limit of the
// answer. Rejects levels that the template does not support. Adds fields that the template cannot apply to
// `job.ignored`.
void set_thinking(const ThinkingRequest& request, const ChatFormats& formats, Json& variables,
                  GenerationJob& job);

}  // namespace attend::serve
