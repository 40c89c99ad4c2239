// Fields that requests of several APIs share: sampling, limits, and what is refused. Each throws ApiError
// naming the field.
#pragma once

#include <initializer_list>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

inline constexpr int kMaxChoices = 128;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr size_t kMaxPrompts = 1024;

// model, rid, stream, priority, cache_salt and extra_key.
void read_request(const Fields& fields, GenerationJob& job);
// What a token is chosen by, what ends the text, and its grammar.
void read_sampling(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job);
// The first of these that is given.
void read_max_tokens(const Fields& fields, std::initializer_list<const char*> keys, GenerationJob& job);
// Refuses fields that would change the answer and that attend does not have.
void reject_unsupported_fields(const Fields& fields);
// Refuses a request that holds too much.
void check_num_completions(const GenerationJob& job);

}  // namespace attend::serve
