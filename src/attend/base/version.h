// The version of attend.
#pragma once

#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

// "0.1.0": of the library that runs, which may be newer than the headers that a program was built with.
std::string_view version();

}  // namespace attend
#pragma GCC visibility pop
