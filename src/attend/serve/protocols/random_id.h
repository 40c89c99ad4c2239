// Ids that a client cannot guess.
#pragma once

#include <string>
#include <string_view>

namespace attend::serve {

// Returns the prefix and `num_digits` random hexadecimal digits, of which at most 32 are supported.
std::string random_id(std::string_view prefix, int num_digits = 32);

}  // namespace attend::serve
