// Endpoint: record of a path that generates text: functions that read its requests and write its replies. A
// new API is a file that defines a record, and a row of kEndpoints.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "attend/serve/protocols/reply_writer.h"

namespace attend::serve {

class ResponseStore;

struct Endpoint {
  std::string_view path;
  std::string_view id_prefix;
  bool has_own_ids;  // the id of a reply is always the server's; else the client may set it
  // Throws ApiError that names the field.
  GenerationJob (*read)(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats);
  // Returns the client's name of a parameter of GenerationRequest. `is_text`: the prompt is a text.
  std::string (*client_field_name)(std::string_view param, bool is_text);
  std::string_view id_header = {};  // response header with the request's id, besides x-request-id
  bool shows_stop_token;            // logprobs include a stop token, which is not part of the text
  // `job` outlives the writer.
  std::unique_ptr<ReplyWriter> (*make_writer)(const ReplyHead& head, const GenerationJob& job);
  // read() with the server's stored responses, to which the body may refer; null: read() suffices.
  GenerationJob (*read_stored)(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats,
                               ResponseStore& store) = nullptr;
};

// Anthropic's endpoint.
extern const Endpoint kMessages;
// OpenAI's endpoints.
extern const Endpoint kChatCompletions, kCompletions, kResponses;
// SGLang's endpoint.
extern const Endpoint kGenerate;

inline constexpr const Endpoint* kEndpoints[] = {&kChatCompletions, &kCompletions, &kResponses, &kGenerate,
                                                 &kMessages};

}  // namespace attend::serve
