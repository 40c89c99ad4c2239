// Text of a call of a custom tool, which the model writes as the arguments of a function.
#pragma once

#include <string>
#include <string_view>

namespace attend::serve {

// Returns the text of the arguments' parameter kCustomInput. If they have none, or were cut off, returns the
// arguments as written.
std::string custom_input(std::string_view arguments);

}  // namespace attend::serve
