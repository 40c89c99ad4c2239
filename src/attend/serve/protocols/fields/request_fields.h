// Request fields that several APIs share: sampling and limits. Each function throws ApiError that names the
// field. foreign_fields.h has the fields that are not supported.
#pragma once

#include <initializer_list>
#include <optional>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

inline constexpr int kMaxChoices = 128;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr size_t kMaxPrompts = 1024;
inline constexpr size_t kMaxStops = 64;

// Reads model, rid, stream, priority, cache_salt, extra_key and truncate_prompt_tokens.
void read_request(const Fields& fields, GenerationJob& job);
// Reads sampling parameters, stop conditions and the grammar.
void read_sampling(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job);
// Reads the limit of new tokens, from the first of these names that is present, otherwise from its names in
// other APIs. 0: the prompt is computed only; -1: up to the end of the context.
void read_max_tokens(const Fields& fields, std::initializer_list<const char*> keys, GenerationJob& job);
// Reads truncate_prompt_tokens: maximum number of prompt tokens, or -1 for the context.
std::optional<int> read_truncation(const Fields& fields);
// Rejects a request with too many completions or parameters.
void check_num_completions(const GenerationJob& job);

}  // namespace attend::serve
