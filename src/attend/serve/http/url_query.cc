#include "attend/serve/http/url_query.h"

#include <algorithm>

#include "attend/serve/http/head_text.h"

namespace attend::serve {
namespace {

std::string decoded(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return percent_decoded(spaced);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view parameter = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (parameter.empty()) continue;
    const size_t equals = std::min(parameter.find('='), parameter.size());
    parameters.emplace_back(decoded(parameter.substr(0, equals)),
                            decoded(parameter.substr(std::min(equals + 1, parameter.size()))));
  }
  return parameters;
}

}  // namespace attend::serve
