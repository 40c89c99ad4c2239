// Request fields that several APIs share: sampling, limits, and unsupported fields. Each function throws
// ApiError that names the field.
#pragma once

#include <initializer_list>
#include <span>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

inline constexpr int kMaxChoices = 128;
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr size_t kMaxPrompts = 1024;
inline constexpr size_t kMaxStops = 64;

// Reads model, rid, stream, priority, cache_salt and extra_key.
void read_request(const Fields& fields, GenerationJob& job);
// Reads sampling parameters, stop conditions and the grammar.
void read_sampling(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job);
// Reads the first of these keys that is present.
void read_max_tokens(const Fields& fields, std::initializer_list<const char*> keys, GenerationJob& job);
// Field that is refused unless its value means the default: false, 0, "", [] or {}.
struct RefusedField {
  const char* key;
  const char* why;
};
void reject_fields(const Fields& fields, std::span<const RefusedField> refused);
// Rejects fields that would change the answer and are not supported.
void reject_unsupported_fields(const Fields& fields);
// Rejects a request with too many completions or parameters.
void check_num_completions(const GenerationJob& job);

}  // namespace attend::serve
