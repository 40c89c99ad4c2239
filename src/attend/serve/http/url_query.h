// Parameters of a URL's query.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attend::serve {

// Returns names and values in order, decoded. A parameter without "=" has an empty value.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

}  // namespace attend::serve
