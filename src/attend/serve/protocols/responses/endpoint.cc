// Endpoint POST /v1/responses.
#include "attend/serve/protocols/endpoint.h"

#include "attend/serve/protocols/responses/response_replies.h"
#include "attend/serve/protocols/responses/response_request.h"

namespace attend::serve {
namespace {

std::string field_name(std::string_view param, bool) {
  if (param == "prompt") return "input";
  if (param == "max_new_tokens") return "max_output_tokens";
  return param == "logprobs" ? "top_logprobs" : std::string(param);
}

}  // namespace

constexpr Endpoint kResponses = {
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .has_own_ids = true,
    .read =
        [](const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats) {
          return read_response_request(body, defaults, formats, nullptr);
        },
    .client_field_name = field_name,
    .shows_stop_token = false,
    .make_writer = [](const ReplyHead& head, const GenerationJob& job) -> std::unique_ptr<ReplyWriter> {
      return std::make_unique<ResponseReplies>(head, job);
    },
    .read_stored =
        [](const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats,
           ResponseStore& store) { return read_response_request(body, defaults, formats, &store); }};

}  // namespace attend::serve
