// Switches, effort levels and budgets of reasoning: which ones a template reads, and how requests set them.
#include "attend/serve/protocols/fields/thinking_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attend/serve/protocols/endpoint.h"

namespace attend::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ChatTemplate thinking_template(const std::string& source) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "thinking_fields.jinja";
  std::ofstream(path) << "{% for m in messages %}{{ m.content }}{% endfor %}" << source;
  return *ChatTemplate::find(ATTEND_SOURCE_DIR "/tests/data/chat_templates", path.string());
}

ThinkingControls controls_of(const std::string& source, const char* reasoning = "qwen3") {
  return ThinkingControls::find(thinking_template(source), &parse_reasoning_format(reasoning));
}

// Constructs that published templates of these families use.
constexpr const char* kHybrid =
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}";  // Qwen3, GLM
constexpr const char* kOffByDefault =
    "{% if thinking %}<think>{% else %}</think>{% endif %}";  // DeepSeek V3.1
constexpr const char* kWrittenLevel =
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "Reasoning: {{ reasoning_effort }}";  // gpt-oss
constexpr const char* kLevels =
    "{% if reasoning_effort not in ['low', 'high', 'no_think'] and reasoning_effort is defined %}"
    "{{ raise_exception('unknown level') }}{% endif %}"
    "{% if reasoning_effort == 'high' %}long{% elif reasoning_effort == 'low' %}short{% else %}no{% endif %}";
constexpr const char* kOtherEffort =
    "{% if thinking_effort is defined and thinking_effort not in ['low', 'high', 'max'] %}"
    "{{ raise_exception('unknown') }}{% endif %}Effort: {{ thinking_effort }}";  // Kimi K3
constexpr const char* kMode =
    "{% if thinking_mode == 'disabled' %}</think>{% elif thinking_mode == 'enabled' %}<think>{% endif %}";  // MiniMax M3
constexpr const char* kBudget =
    "{% if thinking_budget is defined %}at most {{ thinking_budget }} tokens{% endif %}";  // Seed-OSS

TEST(ThinkingControls, AreThoseThatATemplateReads) {
  const auto switches_of = [](const std::string& source) {
    std::vector<std::string> names;
    for (const ThinkingSwitch& found : controls_of(source).switches) names.push_back(found.name);
    return names;
  };
  EXPECT_THAT(switches_of(kHybrid), ElementsAre("enable_thinking"));
  EXPECT_THAT(switches_of(kOffByDefault), ElementsAre("thinking"));
  EXPECT_THAT(switches_of(kMode), ElementsAre("thinking_mode"));
  EXPECT_EQ(controls_of(kHybrid).effort_variable, "");
  EXPECT_THAT(controls_of(kBudget).budgets, ElementsAre("thinking_budget"));
  EXPECT_THAT(controls_of("{% if enable_thinking %}" + std::string(kBudget) + "{% endif %}").budgets,
              ElementsAre("thinking_budget"));
  EXPECT_THAT(controls_of(kWrittenLevel, "gpt-oss").efforts, ElementsAre("low", "medium", "high"));
  EXPECT_THAT(controls_of(kWrittenLevel).efforts,
              ElementsAre("minimal", "low", "medium", "high", "xhigh", "max"));
  const ThinkingControls levels = controls_of(kLevels);
  EXPECT_THAT(levels.efforts, ElementsAre("low", "high"));
  EXPECT_EQ(levels.off_effort, "no_think");
  EXPECT_EQ(levels.effort_variable, "reasoning_effort");
  EXPECT_EQ(controls_of(kOtherEffort).effort_variable, "thinking_effort");
  EXPECT_THAT(controls_of(kOtherEffort).efforts, ElementsAre("low", "high", "max"));
  const ThinkingControls none = controls_of("<think>{{ messages[0].reasoning }}");
  EXPECT_THAT(none.switches, IsEmpty());
  EXPECT_EQ(none.effort_variable, "");
}

// Reads a chat for a model with this template.
GenerationJob read_thinking_chat(const std::string& source, const std::string& fields,
                                 const char* reasoning = "qwen3") {
  ChatFormats formats;
  formats.reasoning = &parse_reasoning_format(reasoning);
  formats.thinking = controls_of(source, reasoning);
  return kChatCompletions.read(
      parse_body(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}"), {}, formats);
}

Json thinking_variables(const std::string& source, const std::string& fields) {
  Json variables = Json::parse(read_thinking_chat(source, fields).variables);
  variables.erase("messages");
  return variables;
}

std::optional<int> thinking_budget(const std::string& source, const std::string& fields) {
  return read_thinking_chat(source, fields).answer->max_reasoning_tokens;
}

TEST(ThinkingFields, SetTheSwitchOfTheTemplate) {
  for (const char* off : {R"("enable_thinking": false)", R"("thinking": {"type": "disabled"})",
                          R"("thinking": false)", R"("reasoning": {"enabled": false})",
                          R"("reasoning_effort": "none")", R"("reasoning": {"effort": "none"})"}) {
    EXPECT_EQ(thinking_variables(kHybrid, off), Json({{"enable_thinking", false}})) << off;
    EXPECT_EQ(thinking_variables(kOffByDefault, off), Json({{"thinking", false}})) << off;
    EXPECT_FALSE(thinking_budget(kHybrid, off)) << off;
    EXPECT_EQ(thinking_variables(kLevels, off), Json({{"reasoning_effort", "no_think"}})) << off;
    EXPECT_EQ(thinking_budget("<think>", off), 0) << "the template cannot switch it off: " << off;
  }
  EXPECT_EQ(thinking_variables(kOffByDefault, R"("reasoning_effort": "low")"), Json({{"thinking", true}}))
      << "a template without levels";
  EXPECT_EQ(thinking_variables(
                kHybrid, R"("enable_thinking": true, "chat_template_kwargs": {"enable_thinking": false})"),
            Json({{"enable_thinking", false}}));
  EXPECT_EQ(thinking_variables(kHybrid, R"("thinking": {"type": "auto"})"), Json::object());
  EXPECT_EQ(thinking_variables(kMode, R"("enable_thinking": true)"), Json({{"thinking_mode", "enabled"}}));
  EXPECT_EQ(thinking_variables(kMode, R"("reasoning_effort": "none")"),
            Json({{"thinking_mode", "disabled"}}));
  EXPECT_EQ(thinking_variables(kOtherEffort, R"("reasoning_effort": "low")"),
            Json({{"thinking_effort", "low"}}));
}

TEST(ThinkingFields, AreReportedAsIgnoredIfTheTemplateHasNoControls) {
  const auto ignored = [](const std::string& source, const std::string& fields, bool reasons) {
    ChatFormats formats;
    if (reasons) formats.reasoning = &parse_reasoning_format("qwen3");
    formats.thinking = ThinkingControls::find(thinking_template(source), formats.reasoning);
    return kChatCompletions
        .read(parse_body(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}"), {}, formats)
        .ignored;
  };
  EXPECT_THAT(ignored("", R"("reasoning_effort": "low")", false), ElementsAre("reasoning_effort"));
  EXPECT_THAT(ignored("", R"("reasoning": {"effort": "low"})", false), ElementsAre("reasoning.effort"));
  EXPECT_THAT(ignored("", R"("thinking": {"type": "enabled"})", false), ElementsAre("thinking.type"));
  EXPECT_THAT(ignored("<think>", R"("reasoning_effort": "low", "enable_thinking": true)", true),
              ElementsAre("reasoning_effort"))
      << "the model always reasons";
  EXPECT_THAT(ignored("", R"("reasoning_effort": "none", "odd": 1)", false), ElementsAre("odd"));
  EXPECT_THAT(ignored(kHybrid, R"("reasoning_effort": "low")", true), IsEmpty());
  EXPECT_THAT(ignored(kLevels, R"("reasoning_effort": "low", "enable_thinking": true)", true), IsEmpty());
}

TEST(ThinkingFields, RejectLevelsThatTheTemplateDoesNotSupport) {
  const auto error = [](const char* source, const std::string& fields, const char* reasoning = "qwen3") {
    try {
      read_thinking_chat(source, fields, reasoning);
    } catch (const ApiError& rejection) {
      return rejection.param + " | " + rejection.message;
    }
    return std::string();
  };
  EXPECT_EQ(error(kWrittenLevel, R"("reasoning_effort": "xhigh")", "gpt-oss"),
            "reasoning_effort | reasoning_effort \"xhigh\": expected one of \"low\", \"medium\", \"high\", "
            "\"none\"");
  EXPECT_EQ(error(kWrittenLevel, R"("reasoning_effort": "high")", "gpt-oss"), "");
  EXPECT_EQ(error(kLevels, R"("reasoning": {"effort": "medium"})"),
            "reasoning.effort | reasoning.effort \"medium\": expected one of \"low\", \"high\", \"none\", "
            "\"no_think\"");
  EXPECT_THAT(error(kHybrid, R"("reasoning_effort": "much")"), HasSubstr("\"xhigh\", \"max\""));
  EXPECT_EQ(error(kHybrid, R"("reasoning_effort": "xhigh")"), "");
  EXPECT_THAT(error(kHybrid, R"("thinking": {"type": "adaptive"})"), HasSubstr("thinking.type | "));
  EXPECT_THAT(error(kHybrid, R"("reasoning": {"exclude": true})"), HasSubstr("reasoning.exclude | "));
  for (const char* budget : {"-2", "1.5", "\"7\"", "3000000000"})
    EXPECT_EQ(error(kHybrid, R"("chat_template_kwargs": {"thinking_budget": )" + std::string(budget) + "}"),
              "chat_template_kwargs.thinking_budget | chat_template_kwargs.thinking_budget " +
                  std::string(budget) + ": expected an integer from -1 to 2147483647");
}

TEST(ThinkingFields, LimitTheReasoning) {
  for (const char* fields :
       {R"("thinking_budget": 7)", R"("thinking_token_budget": 7)", R"("max_thinking_tokens": 7)",
        R"("reasoning_budget": 7)", R"("reasoning": {"max_tokens": 7})",
        R"("thinking": {"type": "enabled", "budget_tokens": 7})",
        R"("chat_template_kwargs": {"thinking_budget": 7})"}) {
    EXPECT_EQ(thinking_budget(kHybrid, fields), 7) << fields;
    EXPECT_EQ(thinking_variables(kBudget, fields), Json({{"thinking_budget", 7}})) << fields;
  }
  EXPECT_FALSE(thinking_budget(kHybrid, R"("thinking_budget": -1)"));
  EXPECT_FALSE(thinking_variables(kHybrid, R"("thinking_budget": 7)").contains("thinking_budget"));
  EXPECT_THROW(read_thinking_chat(kHybrid, R"("thinking_budget": -2)"), ApiError);
  EXPECT_THROW(read_thinking_chat(kHybrid, R"("thinking_budget": 7, "separate_reasoning": false)"), ApiError);
}

TEST(ThinkingFields, RejectContradictions) {
  for (const char* fields : {R"("thinking_budget": 2, "reasoning_budget": 5)",
                             R"("reasoning_effort": "none", "enable_thinking": true)",
                             R"("reasoning_effort": "low", "reasoning": {"effort": "high"})",
                             R"("thinking": {"type": "disabled"}, "enable_thinking": true)",
                             R"("thinking": true, "reasoning": {"enabled": false})"})
    EXPECT_THROW(read_thinking_chat(kHybrid, fields), ApiError) << fields;
  EXPECT_EQ(thinking_budget(kHybrid, R"("thinking_budget": 5, "reasoning_budget": 5)"), 5);
  EXPECT_EQ(thinking_budget(kHybrid, R"("thinking_budget": -1, "reasoning_budget": 5)"), 5);
}

TEST(ThinkingFields, AreReadByTheOtherApis) {
  ChatFormats formats;
  formats.reasoning = &parse_reasoning_format("qwen3");
  formats.thinking = controls_of(kBudget);
  const GenerationJob response =
      kResponses.read(parse_body(R"({"input": "x", "thinking_budget": 9})"), {}, formats);
  EXPECT_EQ(response.answer->max_reasoning_tokens, 9);
  EXPECT_EQ(Json::parse(response.variables)["thinking_budget"], 9);
  const GenerationJob limited =
      kResponses.read(parse_body(R"({"input": "x", "reasoning": {"max_tokens": 6}})"), {}, formats);
  EXPECT_EQ(limited.answer->max_reasoning_tokens, 6);
  const GenerationJob disabled =
      kResponses.read(parse_body(R"({"input": "x", "reasoning": {"enabled": false}})"), {}, formats);
  EXPECT_EQ(disabled.answer->max_reasoning_tokens, 0) << "the template has no switch";
  const GenerationJob message = kMessages.read(
      parse_body(
          R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "thinking": {"type": "disabled"}})"),
      {}, formats);
  EXPECT_EQ(message.answer->max_reasoning_tokens, 0) << "the template has no switch";
  formats.thinking = controls_of(kLevels);
  try {
    kMessages.read(parse_body(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}],
                                  "output_config": {"effort": "max"}})"),
                   {}, formats);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_THAT(error.message, HasSubstr("output_config.effort \"max\": expected one of \"low\""));
  }
}

}  // namespace
}  // namespace attend::serve
