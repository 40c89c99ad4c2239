// ThinkingControls: variables by which a chat template switches reasoning on and off, limits it, and sets its
// effort. They are found by rendering a question with different values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/reasoning.h"
#include "attend/serve/json/fields.h"
#include "attend/text/chat_template/chat_template.h"

namespace attend::serve {

// Levels of effort in the APIs, in increasing order.
inline constexpr std::string_view kEffortLevels[] = {"none", "minimal", "low", "medium",
                                                     "high", "xhigh",   "max"};

// Variable that switches reasoning, and its values.
struct ThinkingSwitch {
  std::string name;
  Json on, off;
};

struct ThinkingControls {
  std::vector<ThinkingSwitch> switches;
  std::vector<std::string> budgets;  // variables with a number of tokens
  std::string effort_variable;       // variable with the level of effort; empty: none
  // Levels that the template renders, without those that switch reasoning off.
  std::vector<std::string> efforts;
  std::string off_effort;  // level that switches reasoning off; empty: none

  // `format`: of the model's reasoning; null: unknown.
  static ThinkingControls find(const ChatTemplate& chat, const ReasoningFormat* format);
};

}  // namespace attend::serve
