// Endpoint: a path that generates, as a record: how its requests are read and its replies written. An API is
// a file that defines one, and a row of kEndpoints.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "attend/serve/protocols/reply_writer.h"

namespace attend::serve {

struct Endpoint {
  std::string_view path;
  std::string_view id_prefix;
  // Throws ApiError naming the field.
  GenerationJob (*read)(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats);
  // What clients call a parameter of GenerationRequest; `is_text`: of a prompt that is a text.
  std::string (*client_field_name)(std::string_view param, bool is_text);
  bool shows_stop_token;  // logprobs are of a token too that ends the text and is no part of it
  // `job` outlives the writer.
  std::unique_ptr<ReplyWriter> (*make_writer)(const ReplyHead& head, const GenerationJob& job);
};

// OpenAI's.
extern const Endpoint kChatCompletions, kCompletions;
// SGLang's.
extern const Endpoint kGenerate;

inline constexpr const Endpoint* kEndpoints[] = {&kChatCompletions, &kCompletions, &kGenerate};

}  // namespace attend::serve
