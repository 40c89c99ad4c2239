#include "attend/serve/protocols/truncate_messages.h"

#include <utility>

namespace attend::serve {

MessageTruncation::MessageTruncation(const std::string& variables)
    : variables_(parse_ordered_json(variables, "the variables", kConversationJson)) {
  const Json& messages = variables_.at("messages");
  for (size_t begin = 0; begin < messages.size();) {
    size_t end = begin + 1;
    if (messages[begin]["role"] != "system") {
      while (end < messages.size() && messages[end]["role"] == "tool") ++end;
      if (end == messages.size()) return;
      turns_.push_back({begin, end});
    }
    begin = end;
  }
}

std::string MessageTruncation::without_oldest(size_t num_turns) const {
  const Json& all = variables_.at("messages");
  Json kept = Json::array();
  size_t turn = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    while (turn < num_turns && turns_[turn].end <= i) ++turn;
    if (turn == num_turns || i < turns_[turn].begin) kept.push_back(all[i]);
  }
  Json variables = variables_;
  variables["messages"] = std::move(kept);
  return json_text(variables);
}

}  // namespace attend::serve
