// Bytes as people read them.
#pragma once

#include <string>

namespace attend {

// " (15.0 GB)", to stand behind a number of bytes in a message; empty below 0.1 GB. A double, since products
// of sizes may not fit a size_t.
std::string gigabytes_beside(double num_bytes);

}  // namespace attend
