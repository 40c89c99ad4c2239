// Readable forms of texts and numbers in messages.
#pragma once

#include <string>
#include <string_view>

namespace attend {

// Replaces control characters except line feed and tab by '?', since a terminal would interpret them: those
// of one byte (ESC, CR, DEL) and those of two in UTF-8 (U+0080 to U+009F).
std::string printable(std::string_view text);

// Replaces the middle of a long text by its length: "abc [... 40000 bytes ...] xyz". Cuts between UTF-8
// characters.
std::string elide(std::string_view text, size_t max_bytes);

// Returns " (15.0 GB)", to follow a number of bytes in a message; empty below 0.1 GB. The argument is a
// double, since products of sizes may not fit a size_t.
std::string gigabytes_suffix(double num_bytes);

}  // namespace attend
