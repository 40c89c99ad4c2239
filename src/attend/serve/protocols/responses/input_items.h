// Items of "input" of POST /v1/responses, and their conversion to messages of a chat template. Each function
// throws ApiError that names the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/json/fields.h"

namespace attend::serve {

// Converts "input" to a list of items in one form: a text becomes a message of the user, messages have a type
// and a list of parts. Items without an id get one. References to items remain. `where`: name of the field.
Json read_items(const Json& input, const std::string& where);

inline constexpr std::string_view kItemReference = "item_reference";

// Returns messages in the form of chat completions. `items`: items of a previous response, `num_earlier`,
// then the result of read_items(). `instructions`: text of a system message before all others; empty: none.
// Rejects an output without a call, a call without an output, and two items with the same id. Adds the files
// of images to `images`.
Json to_messages(const Json& items, size_t num_earlier, const std::string& instructions,
                 std::vector<std::string>& images);

// Converts reasoning to and from "encrypted_content", which clients return unchanged. It is encoded, not
// encrypted.
std::string encode_reasoning(std::string_view text);

// Name of the parameter of custom tools, which have one text.
inline constexpr const char* kCustomInput = "input";

}  // namespace attend::serve
