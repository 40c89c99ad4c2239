// Texts and numbers as people read them in messages.
#pragma once

#include <string>
#include <string_view>

namespace attend {

// The text with '?' for every control character but line feed and tab: a terminal would obey them. Those of
// one byte (ESC, CR, DEL) and those that UTF-8 writes in two (U+0080 to U+009F).
std::string printable(std::string_view text);

// A long text with its middle replaced by its length: "abc [... 40000 bytes ...] xyz". Cuts between UTF-8
// characters.
std::string elide(std::string_view text, size_t max_bytes);

// " (15.0 GB)", to stand behind a number of bytes in a message; empty below 0.1 GB. A double, since products
// of sizes may not fit a size_t.
std::string gigabytes_suffix(double num_bytes);

}  // namespace attend
