// Requests of Anthropic's /v1/messages and /v1/messages/count_tokens.
#pragma once

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

// Reads a request of /v1/messages/count_tokens. Its prompt is that of /v1/messages with the same fields.
// Throws ApiError that names the field.
GenerationJob read_countable(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats);

}  // namespace attend::serve
