// Formats are found from renderings of chat templates.
#include "attend/serve/formats/choose_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace attend::serve {
namespace {

using ::testing::HasSubstr;

ChatTemplate template_of(const std::string& source) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "choose_format.jinja";
  std::ofstream(path) << source;
  return *ChatTemplate::find(ATTEND_SOURCE_DIR "/tests/data/chat_templates", path.string());
}

// Template that writes calls by `call`, with the variable f for a function.
ChatTemplate calling(const std::string& call, const std::string& before = "", const std::string& after = "") {
  return template_of("{% for m in messages %}<|{{ m.role }}|>" + before +
                     "{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function %}" + call +
                     "{% endfor %}" + after + "<|end|>\n{% endfor %}" +
                     "{% if add_generation_prompt %}<|assistant|>{% endif %}");
}

std::string chosen(const ChatTemplate& chat) {
  const ToolChoiceByTemplate choice = choose_tool_format(chat);
  EXPECT_FALSE(choice.reason.empty());
  return choice.format ? std::string(choice.format->name()) : "none: " + choice.reason;
}

TEST(ChooseToolFormat, ReadsTheCallThatATemplateRenders) {
  EXPECT_EQ(chosen(calling("<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson "
                           "}}}\n</tool_call>")),
            "qwen25");
  EXPECT_EQ(chosen(calling("<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments | items "
                           "%}<parameter={{ k }}>\n{{ v }}\n"
                           "</parameter>\n{% endfor %}</function>\n</tool_call>")),
            "qwen3_coder");
  EXPECT_EQ(chosen(calling("<seed:tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments | items "
                           "%}<parameter={{ k }}>{{ v }}"
                           "</parameter>\n{% endfor %}</function>\n</seed:tool_call>")),
            "seed_oss");
  EXPECT_EQ(chosen(calling("<tool_call>{{ f.name }}{% for k, v in f.arguments | items %}<arg_key>{{ k "
                           "}}</arg_key><arg_value>{{ v }}"
                           "</arg_value>{% endfor %}</tool_call>")),
            "glm47");
  EXPECT_EQ(chosen(calling("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}")), "mistral");
  EXPECT_EQ(chosen(calling("{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}")),
            "llama3");
}

// Templates of Kimi K2 make the name from the id, and those of Mistral reject other ids.
TEST(ChooseToolFormat, RendersCallsWithIdsOfTheFormat) {
  EXPECT_EQ(chosen(template_of(
                "{% for m in messages %}<|im_{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
                "<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}"
                "<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
                "<|tool_calls_section_end|>{% endif %}<|im_end|>{% endfor %}")),
            "kimi_k2");
  EXPECT_EQ(chosen(template_of(
                "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}[TOOL_CALLS][{% for c in "
                "m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}{\"name\""
                ": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}, "
                "\"id\": \"{{ c.id }}\"}{% endfor %}]{% endif %}{% endfor %}")),
            "mistral_v3");
}

TEST(ChooseToolFormat, ReportsATemplateThatOmitsTheTools) {
  const auto omits = [](const std::string& source) {
    return choose_formats("qwen25", "none", template_of(source)).tools.omits_tools;
  };
  EXPECT_TRUE(omits("{{ messages[0].content }}"));
  EXPECT_FALSE(omits("{{ tools | tojson }}{{ messages[0].content }}"));
}

TEST(ChooseToolFormat, ReadsInstructionsIfATemplateRendersNoCalls) {
  EXPECT_EQ(chosen(template_of("{% if tools %}Write <tool_call>\n<function=NAME>\n<parameter=KEY>{% endif "
                               "%}{{ messages[0].content }}")),
            "qwen3_coder");
}

TEST(ChooseToolFormat, ReadsTheSourceIfATemplateDescribesNoCalls) {
  EXPECT_EQ(chosen(template_of("{{ messages[-1].content }}{# <tool_call>{name}<arg_key>{k}</arg_key>"
                               "<arg_value>{v}</arg_value></tool_call> #}")),
            "glm47");
}

TEST(ChooseToolFormat, ReportsWhyThereIsNone) {
  EXPECT_THAT(chosen(template_of("{{ messages[0].content }}")), HasSubstr("neither renders a call"));
  EXPECT_THAT(chosen(calling("<<call {{ f.name }} {{ f.arguments }}>>")), HasSubstr("no known format"));
}

TEST(ChooseReasoningFormat, FindsTheTagsAroundReasoning) {
  const auto choose = [](const std::string& source) {
    const ReasoningChoiceByTemplate choice = choose_reasoning_format(template_of(source));
    return choice.format ? choice.format->name() : std::string_view("none");
  };
  EXPECT_EQ(choose("{% for m in messages %}{% if m.reasoning_content %}[THINK]{{ m.reasoning_content "
                   "}}[/THINK]{% endif %}"
                   "{{ m.content }}{% endfor %}"),
            "mistral");
  // Ministral 3's templates read reasoning as a part of the content.
  EXPECT_EQ(
      choose(
          "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content "
          "%}{% if b.type == 'text' %}{{ b.text }}{% elif b.type == 'thinking' %}[THINK]{{ b.thinking "
          "}}[/THINK]{% endif %}{% endfor %}{% endif %}{% endfor %}"),
      "mistral");
  EXPECT_EQ(choose("{{ messages[0].content }}{% if add_generation_prompt %}<seed:think>\n{% endif %}"),
            "seed_oss");
  EXPECT_EQ(choose("{% for m in messages %}{{ m.content }}{% endfor %}"), "none");
  // Granite 3.2 and 3.3 instruct the model, and render reasoning as a part of the content.
  EXPECT_EQ(choose("{% if thinking %}Write your thoughts between <think></think> and your response between "
                   "<response></response>.{% endif %}{{ messages[0].content }}"),
            "granite33");
  EXPECT_EQ(
      choose("{% if thinking %}Write your thoughts after 'Here is my thought process:' and your response "
             "after 'Here is my response:'.{% endif %}{{ messages[0].content }}"),
      "granite");
  EXPECT_EQ(choose("{% if enable_thinking %}Think between <think> and </think>.{% endif %}{{ "
                   "messages[0].content }}"),
            "qwen3");
  EXPECT_EQ(choose("Never write <think> or </think>.{{ messages[0].content }}"), "none");
}

// Returns a tokenizer of one word with these special tokens.
Tokenizer tokenizer_with(const std::vector<std::string>& special_tokens) {
  Json json =
      Json::parse(R"({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  for (const std::string& token : special_tokens)
    json["added_tokens"].push_back({{"id", json["added_tokens"].size() + 1},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "choose_format.json";
  std::ofstream(path) << json.dump();
  return Tokenizer::from_path(path);
}

// LFM2's template writes the list of tools, and its vocabulary has the markers of calls.
TEST(ChooseToolFormat, UsesTheVocabularyIfTheTemplateRendersOnlyTools) {
  const auto choose = [](const std::vector<std::string>& special_tokens, const std::string& source) {
    ModelFormats formats = choose_formats("", "", template_of(source));
    add_formats_by_vocabulary("", tokenizer_with(special_tokens), formats);
    return formats.tools_line();
  };
  const std::string tools =
      "{% if tools %}List of tools: {{ tools | tojson }}{% endif %}{{ messages[0].content }}";
  EXPECT_EQ(choose({"<|tool_call_start|>", "<|tool_call_end|>"}, tools),
            "tool calls: lfm2 (the chat template renders only the tools; the vocabulary has the special "
            "tokens of lfm2)");
  for (const std::string& line :
       {choose({}, tools), choose({"<|tool_call_start|>"}, "{{ messages[0].content }}"),
        choose({"<|tool_call_start|>", "<|tools_prefix|>", "{\""}, tools)})
    EXPECT_THAT(line, HasSubstr("tool calls: none (the chat template neither renders a call"));
}

TEST(ChooseReasoningFormat, UsesTheVocabularyIfTheTemplateRendersNone) {
  const auto choose = [](const std::vector<std::string>& special_tokens, const std::string& name = "",
                         const std::string& source = "{{ messages[0].content }}") {
    ModelFormats formats = choose_formats("", name, template_of(source));
    add_formats_by_vocabulary(name, tokenizer_with(special_tokens), formats);
    return formats.reasoning_line();
  };
  const std::vector<std::string> channels = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>"};
  EXPECT_EQ(
      choose(channels),
      "reasoning: gpt-oss (the chat template renders no reasoning; the vocabulary has the special tokens "
      "of <|channel|>analysis<|message|>)");
  EXPECT_THAT(choose({"[THINK]", "[/THINK]"}), HasSubstr("reasoning: mistral ("));
  EXPECT_THAT(choose({"<think>", "</think>"}), HasSubstr("reasoning: qwen3 ("));
  for (const std::string& line : {choose({"<|channel|>"}), choose({}), choose(channels, "none"),
                                  choose({"<think>", "</think>", "<seed:think>", "</seed:think>"})})
    EXPECT_THAT(line, HasSubstr("reasoning: part of the text (")) << "one tag, none, a flag, two formats";
  EXPECT_THAT(
      choose(channels, "", "{{ messages[0].content }}{% if add_generation_prompt %}<think>{% endif %}"),
      HasSubstr("reasoning: qwen3 ("));
}

}  // namespace
}  // namespace attend::serve
