#include "attend/text/chat_template/values/render.h"

#include <algorithm>

namespace attend::chat_template {

constinit thread_local ReadBudget* ReadBudget::current_ = nullptr;

void ReadBudget::fail() {
  fail_template("reads more than ", std::to_string(kMaxBytes), " bytes of text and values");
}

std::optional<Value> Arguments::take(std::string_view name) {
  if (next_ < positional.size()) return positional[next_++];
  return take_named(name);
}

std::optional<Value> Arguments::take_named(std::string_view name) {
  const auto found =
      std::find_if(named.begin(), named.end(), [&](const auto& item) { return item.first == name; });
  if (found == named.end()) return std::nullopt;
  Value value = std::move(found->second);
  named.erase(found);
  return value;
}

std::vector<Value> Arguments::take_rest() {
  std::vector<Value> rest(positional.begin() + static_cast<std::ptrdiff_t>(next_), positional.end());
  next_ = positional.size();
  return rest;
}

void Arguments::finish(std::string_view function) const {
  if (next_ < positional.size())
    fail_template(function, ": accepts at most ", std::to_string(next_), " arguments");
  if (!named.empty()) fail_template(function, ": has no argument ", named.front().first);
}

}  // namespace attend::chat_template
