#include "attend/serve/formats/thinking_controls.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <set>
#include <utility>

#include "attend/base/error.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {
namespace {

// Variables with their values for on and off, as JSON.
struct KnownSwitch {
  const char *name, *on, *off;
};
constexpr KnownSwitch kSwitches[] = {{"enable_thinking", "true", "false"},
                                     {"thinking", "true", "false"},
                                     {"reasoning", "true", "false"},
                                     {"thinking_mode", "\"enabled\"", "\"disabled\""}};
constexpr const char* kBudgets[] = {"thinking_budget", "reasoning_budget"};
constexpr const char* kEfforts[] = {"reasoning_effort", "thinking_effort"};
constexpr std::string_view kOffLevels[] = {"none", "no_think"};
constexpr std::string_view kUnknownLevel = "attend-level";

// Renders a question with variables.
class QuestionProbe {
 public:
  explicit QuestionProbe(const ChatTemplate& chat) : chat_(chat) {}

  void set(const char* name, const Json& value) { variables_[name] = value; }
  // Returns no value if the template rejects the variable's value.
  std::optional<std::string> prompt(const char* name, const Json& value) const {
    Json variables = variables_;
    variables[name] = value;
    try {
      std::string text;
      for (const ChatTemplate::Part& part :
           chat_.render(variables.dump(), /*add_generation_prompt=*/true, std::time_t{0}))
        text += part.text;
      return text;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  const ChatTemplate& chat_;
  Json variables_ = {{"messages", Json::array({{{"role", "user"}, {"content", "attend asks this"}}})}};
};

// Returns the quoted words of a template's source.
std::set<std::string> quoted_words(const std::string& source) {
  constexpr size_t kMaxSize = 16;
  const auto is_word = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  std::set<std::string> words;
  for (size_t at = 0; (at = source.find_first_of("'\"", at)) != std::string::npos; ++at) {
    size_t end = at + 1;
    while (end < source.size() && is_word(source[end])) ++end;
    if (end < source.size() && source[end] == source[at] && end > at + 1 && end - at <= kMaxSize)
      words.insert(source.substr(at + 1, end - at - 1));
  }
  return words;
}

bool is_off(std::string_view level) { return std::ranges::find(kOffLevels, level) != std::end(kOffLevels); }

void find_efforts(const ChatTemplate& chat, const QuestionProbe& probe, const ReasoningFormat* format,
                  const char* variable, ThinkingControls& found) {
  const auto unknown = probe.prompt(variable, kUnknownLevel);
  const bool writes_level = unknown && unknown->find(kUnknownLevel) != std::string::npos;
  // True if the template has a case for the level.
  const auto distinguishes = [&](std::string_view level) {
    const auto prompt = probe.prompt(variable, level);
    return !writes_level && prompt && prompt != unknown;
  };
  std::vector<std::string> cases;
  for (const std::string& word : quoted_words(chat.source()))
    if (distinguishes(word)) cases.push_back(word);
  if (!writes_level && cases.empty()) return;
  found.effort_variable = variable;
  for (const std::string_view off : kOffLevels)
    if (found.off_effort.empty() && std::ranges::find(cases, off) != cases.end()) found.off_effort = off;
  const bool has_own = format && format->efforts.begin() != format->efforts.end();
  for (const std::string_view level : kEffortLevels) {
    const bool is_known = !has_own || std::ranges::find(format->efforts, level) != format->efforts.end();
    if (is_known && !is_off(level) && probe.prompt(variable, level)) found.efforts.emplace_back(level);
  }
  for (const std::string& word : cases)
    if (!has_own && !is_off(word) && std::ranges::find(found.efforts, word) == found.efforts.end())
      found.efforts.push_back(word);
}

}  // namespace

ThinkingControls ThinkingControls::find(const ChatTemplate& chat, const ReasoningFormat* format) {
  ThinkingControls found;
  QuestionProbe probe(chat);
  for (const KnownSwitch& known : kSwitches) {
    const Json on = Json::parse(known.on), off = Json::parse(known.off);
    const auto with = probe.prompt(known.name, on), without = probe.prompt(known.name, off);
    if (with && without && with != without) found.switches.push_back({known.name, on, off});
  }
  // Some templates render a budget or an effort only with reasoning.
  for (const KnownSwitch& known : kSwitches) probe.set(known.name, Json::parse(known.on));
  for (const char* name : kBudgets) {
    const auto more = probe.prompt(name, 1024), less = probe.prompt(name, 512);
    if (more && less && more != less) found.budgets.emplace_back(name);
  }
  for (const char* variable : kEfforts)
    if (found.effort_variable.empty()) find_efforts(chat, probe, format, variable, found);
  return found;
}

}  // namespace attend::serve
