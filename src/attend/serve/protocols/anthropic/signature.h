// Signatures of thinking blocks. A client sends the blocks of earlier answers back with their signatures,
// which show that the text is complete and unchanged. They are checksums without a key, so that all servers
// accept each other's, also after a restart.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attend::serve {

// `with_text`: the signature contains the text, for blocks that are sent without it.
std::string sign_thinking(std::string_view text, bool with_text);
// Returns the text of a thinking block: `text`, or the one that the signature contains if `text` is empty. No
// value: the signature is not one of this text.
std::optional<std::string> signed_thinking(std::string_view text, std::string_view signature);

}  // namespace attend::serve
