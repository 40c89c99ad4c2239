// Fields of OpenAI's, SGLang's, vLLM's and llama-server's APIs that attend does not support, or not at every
// endpoint. A new row of the tables in foreign_fields.cc rejects a field or documents that it has no effect.
#pragma once

#include <span>

#include "attend/serve/json/fields.h"

namespace attend::serve {

struct RefusedField {
  const char* key;
  const char* why;  // why it is rejected, or what to use instead
  // JSON of the value that requests the default. If empty: false, 0, "", [] and {}. "null": every value is
  // rejected.
  const char* neutral = "";
};

std::span<const RefusedField> unsupported_fields();
// Fields that cannot change the answer: notes, hints, and parameters of features that are rejected.
std::span<const char* const> fields_without_effect();

// Rejects these fields, unless their value requests the default.
void reject_fields(const Fields& fields, std::span<const RefusedField> refused);
// Rejects unsupported fields of a request, unless their value requests the default. Fields that the endpoint
// has read are supported there. Afterwards, fields.unknown() are the fields of no API.
void reject_unsupported_fields(const Fields& fields);

}  // namespace attend::serve
