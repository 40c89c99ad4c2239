#include "attend/serve/protocols/fields/thinking_fields.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace attend::serve {
namespace {

// Variables of templates that are not known.
constexpr const char* kAllSwitches[] = {"enable_thinking", "thinking"};
constexpr const char* kBudgetVariable = "thinking_budget";
constexpr const char* kEffortVariable = "reasoning_effort";

// Sets `value` and the name of its field. Rejects a field that contradicts an earlier one.
template <class T>
void set_value(std::optional<T>& value, std::string& field, T given, const std::string& given_field) {
  if (value && *value != given)
    reject(given_field, given_field, " and ", field, " have different values: expected one of them");
  value = std::move(given);
  field = given_field;
}

void read_thinking_limit(const Fields& fields, const char* key, ThinkingRequest& request) {
  const auto budget = fields.integer(key, -1, INT32_MAX);
  if (!budget || *budget < 0) return;
  set_value(request.max_tokens, request.budget_field, static_cast<int>(*budget), fields.name(key));
}

void read_effort_level(const Fields& fields, const char* key, ThinkingRequest& request) {
  if (auto effort = fields.string(key))
    set_value(request.effort, request.effort_field, std::move(*effort), fields.name(key));
}

void read_enabled(const Fields& fields, const char* key, ThinkingRequest& request) {
  if (const auto enabled = fields.boolean(key))
    set_value(request.enabled, request.enabled_field, *enabled, fields.name(key));
}

// Reads the field of DeepSeek's, GLM's and Kimi's APIs, or a boolean.
void read_thinking_switch(const Json& given, ThinkingRequest& request) {
  if (given.is_boolean())
    return set_value(request.enabled, request.enabled_field, given.get<bool>(), "thinking");
  const Fields inner(given, "thinking.");
  const std::string type = inner.string("type").value_or("");
  if (type != "enabled" && type != "disabled" && type != "auto")
    reject("thinking.type", "thinking ", excerpt(given),
           R"(: expected the type "enabled", "disabled" or "auto")");
  if (type != "auto") set_value(request.enabled, request.enabled_field, type == "enabled", "thinking.type");
  read_thinking_limit(inner, "budget_tokens", request);
}

template <class Texts>
std::string list_levels(const Texts& texts) {
  std::string all;
  for (const auto& text : texts) all += (all.empty() ? "\"" : ", \"") + std::string(text) + "\"";
  return all;
}

// Rejects levels that the template does not support. Without controls, all levels of the APIs are known.
void check_effort(const ThinkingRequest& request, const ThinkingControls* controls) {
  const std::string& effort = *request.effort;
  std::vector<std::string> known(std::begin(kEffortLevels), std::end(kEffortLevels));
  if (controls && !controls->effort_variable.empty()) {
    known = controls->efforts;
    for (const std::string& off : {std::string("none"), controls->off_effort})
      if (!off.empty() && std::ranges::find(known, off) == known.end()) known.push_back(off);
  }
  if (std::ranges::find(known, effort) == known.end())
    reject(request.effort_field, request.effort_field, " ", excerpt(effort), ": expected one of ",
           list_levels(known));
}

void set_switches(bool is_on, const ThinkingControls* controls, Json& variables) {
  if (controls)
    for (const ThinkingSwitch& found : controls->switches)
      variables.emplace(found.name, Json(is_on ? found.on : found.off));
  else
    for (const char* name : kAllSwitches) variables.emplace(name, is_on);
}

// Switches reasoning off. Returns false if the template cannot.
bool switch_off(const ThinkingControls* controls, Json& variables) {
  set_switches(false, controls, variables);
  if (!controls) return true;
  if (!controls->off_effort.empty()) variables.emplace(controls->effort_variable, controls->off_effort);
  return !controls->switches.empty() || !controls->off_effort.empty();
}

// Returns the budget that a client passed as a variable of the template, or no value for an unlimited one.
std::optional<int> budget_variable(const Json& variables) {
  const auto budget = Fields(variables, "chat_template_kwargs.").integer(kBudgetVariable, -1, INT32_MAX);
  return budget && *budget >= 0 ? std::optional(static_cast<int>(*budget)) : std::nullopt;
}

void set_budget_variables(int budget, const ThinkingControls* controls, Json& variables) {
  if (controls)
    for (const std::string& name : controls->budgets) variables.emplace(name, budget);
  else
    variables.emplace(kBudgetVariable, budget);
}

}  // namespace

void read_reasoning_object(const Fields& inner, ThinkingRequest& request) {
  read_effort_level(inner, "effort", request);
  read_thinking_limit(inner, "max_tokens", request);
  read_enabled(inner, "enabled", request);
  if (inner.boolean("exclude").value_or(false))
    reject_unsupported(inner.name("exclude"), "not supported; expected false");
}

void read_thinking_budget(const Fields& fields, ThinkingRequest& request) {
  for (const char* key :
       {"thinking_budget", "thinking_token_budget", "max_thinking_tokens", "reasoning_budget"})
    read_thinking_limit(fields, key, request);
}

ThinkingRequest read_chat_thinking(const Fields& fields) {
  ThinkingRequest request;
  if (const Json* reasoning = fields.find("reasoning"))
    read_reasoning_object(Fields(*reasoning, "reasoning."), request);
  if (const Json* thinking = fields.find("thinking")) read_thinking_switch(*thinking, request);
  read_enabled(fields, "enable_thinking", request);
  read_effort_level(fields, "reasoning_effort", request);
  read_thinking_budget(fields, request);
  return request;
}

void set_thinking(const ThinkingRequest& request, const ChatFormats& formats, Json& variables,
                  GenerationJob& job) {
  const ThinkingControls* const controls = formats.thinking ? &*formats.thinking : nullptr;
  const std::optional<int> own_budget = budget_variable(variables);
  std::optional<int> budget = request.max_tokens;
  if (request.effort) check_effort(request, controls);
  const bool is_off_level =
      request.effort && (request.effort == "none" || (controls && request.effort == controls->off_effort));
  if (request.enabled == true && is_off_level)
    reject(request.effort_field, request.effort_field, " ", excerpt(*request.effort), ": ",
           request.enabled_field, " switches reasoning on; expected one of them");
  if (request.enabled == false || is_off_level) {
    if (!switch_off(controls, variables)) budget = 0;
  } else {
    // A template without levels may have reasoning switched off by default.
    const std::string variable = controls ? controls->effort_variable : kEffortVariable;
    if (request.enabled || (request.effort && variable.empty())) set_switches(true, controls, variables);
    if (request.effort && !variable.empty()) variables.emplace(variable, *request.effort);
    if (controls && controls->switches.empty()) {
      // The template reasons always or never.
      if (request.enabled && !formats.reasoning) job.ignored.push_back(request.enabled_field);
      if (request.effort && variable.empty()) job.ignored.push_back(request.effort_field);
    }
    if (budget) set_budget_variables(*budget, controls, variables);
    if (!budget) budget = own_budget;
  }
  if (!budget) return;
  if (job.answer && job.answer->reasoning)
    job.answer->max_reasoning_tokens = budget;
  else if (!request.budget_field.empty())
    reject_unsupported(request.budget_field,
                       "the model's reasoning is not separated from its text; expected separate_reasoning "
                       "true and a server with --reasoning-parser");
}

}  // namespace attend::serve
