// MessageTruncation: a conversation without its oldest messages, for prompts that exceed the context.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attend/serve/json/fields.h"

namespace attend::serve {

class MessageTruncation {
 public:
  // `variables`: JSON of the chat template's variables, with "messages".
  explicit MessageTruncation(const std::string& variables);

  // Number of turns that can be dropped: a message and the results of its calls are one turn. System messages
  // and the last turn are kept.
  size_t max_dropped() const { return turns_.size(); }
  // Returns the variables without the first `num_turns` of these turns.
  std::string without_oldest(size_t num_turns) const;

 private:
  struct Turn {
    size_t begin, end;  // messages
  };
  Json variables_;
  std::vector<Turn> turns_;
};

}  // namespace attend::serve
