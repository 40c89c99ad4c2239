// Replies to requests for stored responses. Each function throws ApiError 404 for an unknown id.
#pragma once

#include <string>
#include <string_view>

#include "attend/serve/protocols/responses/response_store.h"

namespace attend::serve {

// `query`: of the URL, as sent by the client.
std::string stored_response(ResponseStore& store, const std::string& id, std::string_view query);
std::string delete_response(ResponseStore& store, const std::string& id);
// Returns a page of the items that the response answers.
std::string input_item_list(ResponseStore& store, const std::string& id, std::string_view query);
// Throws ApiError: responses are not computed in the background.
[[noreturn]] void cancel_response(ResponseStore& store, const std::string& id);

}  // namespace attend::serve
