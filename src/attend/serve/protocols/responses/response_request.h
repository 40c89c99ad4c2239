// ResponseRequest: fields of POST /v1/responses that its reply needs.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/generation_job.h"
#include "attend/serve/protocols/responses/response_store.h"

namespace attend::serve {

struct ResponseRequest {
  std::vector<ResponseItem> input;  // items of the conversation; empty if the response is not stored
  // Fields of the response object that repeat the request: names, and values as JSON.
  std::vector<std::pair<std::string, std::string>> repeated;
  std::set<std::string> custom_tools;  // tools whose calls have a text instead of arguments
  bool has_summary = false;            // reasoning is returned as its summary
  bool encodes_reasoning = false;      // reasoning items have encrypted_content
  bool is_stored = false;
  // Store of the server; null: none.
  ResponseStore* store = nullptr;
};

// Reads a body. `store`: resolves previous_response_id and references to items; null: the input is the whole
// conversation. Throws ApiError 404 for an id that is not stored.
GenerationJob read_response_request(const Json& body, const SamplingDefaults& defaults,
                                    const ChatFormats& formats, ResponseStore* store);

}  // namespace attend::serve
