// Version of attend.
#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

// Returns "0.1.0", the version of the running library, which may be newer than the headers of the program.
std::string_view version();

}  // namespace attend
#pragma GCC visibility pop
