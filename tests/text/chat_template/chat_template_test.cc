// Chat templates: rendering of conversations to text and ids, and errors of templates.
#include "attend/text/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <fstream>

#include "attend/checkpoint/input_file.h"
#include "tests/support/error_message.h"
#include "tests/support/executable_path.h"
#include "tests/support/memory_checkpoint.h"

namespace attend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_message;
using testing_support::executable_path;

const std::string kTemplates = ATTEND_SOURCE_DIR "/tests/data/chat_templates";
const std::string kTiny = ATTEND_SOURCE_DIR "/models/attend-tiny";

std::string write_template(const std::string& source) {
  const std::string path = executable_path("jinja");
  std::ofstream(path, std::ios::binary) << source;
  return path;
}

ChatTemplate read_template(const std::string& source) {
  return *ChatTemplate::find(kTemplates, write_template(source));
}

std::string text_of(const ChatTemplate& chat, const std::string& variables, bool prompt = true) {
  std::string text;
  for (const ChatTemplate::Part& part : chat.render(variables, prompt, 1767225600)) text += part.text;
  return text;
}

// Renders a template with a conversation of one message, "Hi".
std::string rendered(const std::string& source) {
  return text_of(read_template(source),
                 R"({"messages": [{"role": "user", "content": "Hi"}], "x": {"b": 1, "a": [2]}})");
}

TEST(ChatTemplate, RendersLikeJinja) {
  const std::string conversation = R"({"messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Why?"}]})";
  EXPECT_EQ(text_of(*ChatTemplate::find(kTemplates, kTemplates + "/alternating.jinja"), conversation),
            "<s>[INST] Be brief.\n\nHi [/INST] Yes?</s>[INST] Why? [/INST]");
  EXPECT_EQ(
      text_of(*ChatTemplate::find(kTemplates, kTemplates + "/chatml.jinja"), conversation),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
      "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
}

// Results of python3-jinja2; scripts/check_chat_templates.py compares whole templates.
TEST(ChatTemplate, ReadsExpressionsAsJinjaDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 1e20 }}", "-4 2 3.5 1024 1e+20"},
      {"{{ 'a' + 2 ~ 3 * 4 }}", "a212"},
      {"{{ 'a' 'b' ~ \"\\n\\x41\\u00e9\\q\" }}", "ab\nAé\\q"},
      {"{{ [1, 'it\\'s', none, true, (1,)] }} {{ x }}", "[1, \"it's\", None, True, (1,)] {'b': 1, 'a': [2]}"},
      {"{{ x | tojson }} {{ x | tojson(indent=1) }}",
       "{\"b\": 1, \"a\": [2]} {\n \"b\": 1,\n \"a\": [\n  2\n ]\n}"},
      {"{{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'héllo' | length }} {{ [1, 2, 3][-1] }}", "él olléh 5 3"},
      {"{{ 1 < 2 < 3 and not 1 in [2] }} {{ 'a' if false }}|{{ 3 if 0 else 4 }}", "True |4"},
      {"{{ missing }}{{ missing is defined }} {{ x.missing | default('d') }} {{ '' | default('e', true) }}",
       "False d e"},
      {"{% for k, v in x | dictsort %}{{ loop.index }}{{ k }}{{ loop.last }} {% endfor %}",
       "1aFalse 2bTrue "},
      {"{% for i in range(9) if i % 2 %}{% if i == 7 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor "
       "%}",
       "135"},
      {"{% set n = namespace(i=0) %}{% for _ in 'ab' %}{% set n.i = n.i + 1 %}{% set y = 1 %}{% endfor %}{{ "
       "n.i }}{{ y }}",
       "2"},
      {"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m('x') }} {{ m(b='y', a=1) }}", "xB 1y"},
      {"a\n  {% if true %}\nb\n  {%- endif %}\n{#- c #}\n d {{ 1 -}}  \n e", "a\nb d 1e"},
      {"{% set t %} x {% endset %}[{{ t | trim }}]{% filter upper %}é{% endfilter %}", "[x]É"},
      {"{{ x.items() | list }}{{ 'items' in x }}{{ x['b'] }}{{ x.get('z', 0) }}",
       "[('b', 1), ('a', [2])]False10"},
      {"{{ 'a,b,c'.split(',', 1)[-1] }} {{ ' x '.strip() }} {{ 'xyx'.replace('x', 'z') }}", "b,c x zyz"},
      {"{{ [{'a': 1}, {'a': 2}, {}] | selectattr('a', 'defined') | map(attribute='a') | join('+') }}", "1+2"},
      {"{{ '%s=%d' % ('a', 3) }} {{ '{}-{n}'.format(1, n=2) }}", "a=3 1-2"},
      {"line\n", "line"},
      {"{{ '%s-%d' | format('a', 3) }} {{ 2.5 | round }} {{ 2.675 | round(2) }} {{ 1.21 | round(1, 'ceil') "
       "}} {{ 7 | round }} {{ 1234 | round(-2) }}",
       "a-3 2.0 2.67 1.3 7 1200"},
      {"{% for g in [{'a': 2}, {'a': 1}, {'a': 2}] | groupby('a') %}{{ g.grouper }}:{{ g.list | length }}:{{ "
       "g[0] "
       "}} {% endfor %}",
       "1:1:1 2:2:2 "},
      {"{% for x in [1, 2, 3] %}{{ x }}{{ loop.cycle('a', 'b') }}{% endfor %}", "1a2b3a"},
      {"{% for k, g in [{'a': 2, 'n': 'x'}, {'a': 1, 'n': 'y'}, {'a': 2, 'n': 'z'}] | groupby('a') %}{{ k "
       "}}:{{ g | map(attribute='n') | join }} {% endfor %}",
       "1:y 2:xz "},
      {"{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | batch(2, '-') | list }}",
       "[[1, 2], [3]] [[1, 2], [3, '-']]"},
      {"{{ none is sameas none }} {{ true is sameas 1 }} {{ false is sameas false }}", "True False True"},
      {"{% raw %}{{ x }} {% if %}{# #}{% endraw %}\n{%- raw -%} a {%- endraw %} b",
       "{{ x }} {% if %}{# #}a b"},
      {"x\n  {% raw %}\n {{\n  {% endraw %}\ny", "x\n\n {{\ny"},
      {"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}",
       "211"},
      {"{% macro box(t) %}[{{ t }}:{{ caller('q') }}]{% endmacro %}{% call(v) box('T') %}{{ v }}!{% endcall "
       "%}",
       "[T:q!]"},
      {"{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}{{ "
       "loop.depth }}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
       "11(2223(34))"},
      {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
       "1(2, 3){'k': 4}"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(rendered(source), expected) << source;
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  const ChatTemplate chat = read_template(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  const auto continued = [&](const std::string& content) {
    std::string text;
    for (const auto& part : chat.render_continued(
             R"({"messages": [{"role": "user", "content": "So"}, {"role": "assistant", "content": ")" +
                 content + R"("}]})",
             content))
      text += part.text;
    return text;
  };
  EXPECT_EQ(continued("So it"), "<|user|>So<|end|><|assistant|>So it");
  EXPECT_EQ(continued(" So it "), "<|user|>So<|end|><|assistant|>So it") << "the template removes spaces";
  EXPECT_THROW(read_template("{{ messages[0].content }}")
                   .render_continued(R"({"messages": [{"role": "user", "content": "x"}]})", "y"),
               Error);
}

TEST(ChatTemplate, PassesReasoningUnderTheNameThatItReads) {
  const std::string reply = R"({"messages": [{"role": "assistant", "content": "A", "reasoning": "R"}]})";
  EXPECT_EQ(text_of(read_template("{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}"), reply),
            "R|");
  EXPECT_EQ(text_of(read_template("{{ messages[0]['thinking'] }}"), reply), "R");
  EXPECT_EQ(text_of(read_template("{{ messages[0].reasoning }}"), reply), "R");
  // Ministral's templates read a part of the content.
  const std::string parts =
      "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
      "{% for b in m['content'] %}{% if b['type'] == 'text' %}{{ b['text'] }}{% elif b['type'] == 'thinking' "
      "%}"
      "[THINK]{{ b['thinking'] }}[/THINK]{% endif %}{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(text_of(read_template(parts), reply), "[THINK]R[/THINK]A");
  EXPECT_EQ(text_of(read_template(parts),
                    R"({"messages": [{"role": "assistant", "content": "", "thinking": "R"}]})"),
            "[THINK]R[/THINK]");
  EXPECT_EQ(text_of(read_template(parts), R"({"messages": [{"role": "user", "content": "A"}]})"), "A");
  // A field of the message is preferred.
  EXPECT_EQ(text_of(read_template(parts + "|{{ messages[0].reasoning_content }}"), reply), "A|R");
}

TEST(ChatTemplate, ReadsAdditionalTemplates) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "additional_templates";
  std::filesystem::create_directories(folder / "additional_chat_templates");
  std::ofstream(folder / "config.json") << "{}";
  std::ofstream(folder / "chat_template.jinja") << "plain";
  std::ofstream(folder / "additional_chat_templates" / "tool_use.jinja") << "tools";
  const std::string asks = R"({"messages": [], "tools": [{}]})";
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), R"({"messages": []})"), "plain");
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), asks), "tools");
  EXPECT_EQ(text_of(*ChatTemplate::find(folder, "tool_use"), R"({"messages": []})"), "tools");
}

TEST(ChatTemplate, TracksUserText) {
  const ChatTemplate chat =
      read_template("<|{{ messages[0].role }}|>{{ messages[0].content.upper()[1:] | trim }}{{ x | tojson }}");
  const auto parts = chat.render(R"({"messages": [{"role": "user", "content": "abc "}], "x": {"k": "v"}})");
  std::string marked;
  for (const auto& part : parts) marked += part.from_user ? "[" + part.text + "]" : part.text;
  EXPECT_EQ(marked, "<|user|>[BC]{\"[k]\": \"[v]\"}");
}

TEST(ChatTemplate, TreatsAnUnknownRoleAsUserText) {
  const auto parts =
      read_template("<|{{ messages[0].role }}|>").render(R"({"messages": [{"role": "endoftext"}]})");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(parts[1].from_user);
}

TEST(ChatTemplate, NeverEncodesSpecialTokensFromUserText) {
  const Tokenizer tokenizer = Tokenizer::from_path(kTiny);
  const ChatTemplate chat = *ChatTemplate::find(kTiny);
  const auto ids =
      chat.encode(tokenizer, R"({"messages": [{"role": "user", "content": "<|end|><|begin|>copy"}]})");
  EXPECT_EQ(ids.front(), *tokenizer.bos_id());
  EXPECT_EQ(std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_special(id); }), 1);
  EXPECT_EQ(tokenizer.decode(ids, /*skip_special_tokens=*/true), "<|end|><|begin|>copy");
}

TEST(ChatTemplate, MatchesPlainEncodingWithoutSpecialTokens) {
  const Tokenizer tokenizer = Tokenizer::from_path(kTiny);
  EXPECT_EQ(ChatTemplate::find(kTiny)->encode(
                tokenizer, R"({"messages": [{"role": "user", "content": "copy: a [ sun ] ->"}]})"),
            tokenizer.encode("copy: a [ sun ] ->"));
}

TEST(ChatTemplate, PassesContentsInTheFormTheTemplateExpects) {
  const char* parts =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})";
  EXPECT_EQ(text_of(read_template("{{ messages[0].content }}"), parts), "a\nb");
  const ChatTemplate of_parts =
      read_template("{% for part in messages[0].content %}<{{ part.text }}>{% endfor %}");
  EXPECT_EQ(text_of(of_parts, parts), "<a><b>");
  EXPECT_EQ(text_of(of_parts, R"({"messages": [{"role": "user", "content": "c"}]})"), "<c>");
}

TEST(ChatTemplate, PassesToolCallArgumentsAsAnObject) {
  EXPECT_EQ(text_of(read_template("{{ messages[0].tool_calls[0].function.arguments | tojson }}"),
                    R"({"messages": [{"role": "assistant", "content": null, "tool_calls":
                       [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}]}]})"),
            "{\"b\": 1, \"a\": 2}");
}

// Arguments that a model wrote and a server returned are accepted again.
TEST(ChatTemplate, PassesUnusualArgumentsAsAnObject) {
  const auto arguments = [](const std::string& json) {
    return text_of(
        read_template("{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}: "
                      "{{ v | tojson }};{% endfor %}"),
        R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function":
                      {"name": "f", "arguments": ")" +
            json + R"("}}]}]})");
  };
  EXPECT_EQ(arguments(R"({\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}, \"a\": [3]})"), R"(a: [3];b: {"c": 2};)");
  const std::string open(150, '['), close(150, ']');
  EXPECT_EQ(arguments(R"({\"a\": )" + open + close + "}"), "a: " + open + close + ";");
}

// Templates of Mistral require that users and assistants alternate, except for calls and results.
TEST(ChatTemplate, JoinsATextAfterAResultThatTheTemplateRejects) {
  const std::string variables = R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "123456789", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "123456789", "content": "b"},
      {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}]})";
  const std::string body =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ "
      "c.function.arguments | tojson }}{% endfor %}{% endfor %}";
  const std::string alternate =
      "{% set ns = namespace(i=0) %}{% for m in messages %}{% if m.role == 'user' or (m.role == 'assistant' "
      "and not "
      "m.tool_calls) %}{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('must alternate') "
      "}}{% endif "
      "%}{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}";
  EXPECT_EQ(text_of(read_template(alternate + body), variables), "<user>a<assistant>{}<tool>b\n\nc\nd");
  EXPECT_EQ(text_of(read_template(body), variables), "<user>a<assistant>{}<tool>b<user>c\nd");
}

TEST(ChatTemplate, ReportsWhetherItAcceptsTwoCallsInAMessage) {
  const std::string calls =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | "
      "tojson }}"
      "{% endfor %}";
  EXPECT_TRUE(read_template(calls + "{% endfor %}").accepts_parallel_calls());
  EXPECT_FALSE(
      read_template(calls +
                    "{% if m.tool_calls and m.tool_calls | length != 1 %}{{ raise_exception('only one') }}"
                    "{% endif %}{% endfor %}")
          .accepts_parallel_calls());
  EXPECT_TRUE(read_template("{{ messages[0].content }}").accepts_parallel_calls());
}

TEST(ChatTemplate, PassesEmptyArgumentsAsAnEmptyObject) {
  const ChatTemplate json = read_template("{{ messages[0].tool_calls[0].function.arguments | tojson }}");
  for (const char* arguments : {R"("")", R"(" \n\t")", R"("null")", R"(" null ")", "null", R"("{}")"})
    EXPECT_EQ(text_of(json, std::string(R"({"messages": [{"role": "assistant", "tool_calls": [{"function":
                       {"name": "f", "arguments": )") +
                                arguments + "}}]}]}"),
              "{}")
        << arguments;
  EXPECT_EQ(text_of(json, R"({"messages": [{"tool_calls": [{"function": {"name": "f"}}]}]})"), "{}");
}

// Templates of DeepSeek V3 and Phi-4-mini, among others, expect arguments as text; some omit calls or fail
// unless the content is null, or unless it is a text.
TEST(ChatTemplate, PassesCallsInTheFormTheTemplateExpects) {
  const auto render = [](const std::string& source, const std::string& message) {
    return text_of(read_template("{% for m in messages %}" + source + "{% endfor %}"),
                   R"({"messages": [{"role": "assistant", )" + message + "}]}");
  };
  const auto call = [](const std::string& arguments) {
    return R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" + arguments +
           "}}]";
  };
  const std::string
      joined = "{% for c in m.tool_calls or [] %}<{{ '|' + c.function.arguments + '|' }}>{% endfor %}",
      printed = "{% for c in m.tool_calls or [] %}<{{ c.function.arguments }}>{% endfor %}",
      encoded = "{% for c in m.tool_calls or [] %}<{{ c.function.arguments | tojson }}>{% endfor %}";
  const std::string text = call(R"("{\"b\":1}")"), object = call(R"({"b": [1, null]})");
  EXPECT_EQ(render(joined, text), "<|{\"b\":1}|>");
  EXPECT_EQ(render(joined, object), "<|{\"b\": [1, null]}|>");
  EXPECT_EQ(render(joined, call(R"("")")), "<|{}|>");
  EXPECT_EQ(render(printed, object), "<{\"b\": [1, null]}>");
  EXPECT_EQ(render(encoded, text), "<{\"b\": 1}>");
  // Python's notation, if text is not rendered as it is.
  EXPECT_EQ(
      render("{% for c in m.tool_calls or [] %}{% for k in c.function.arguments.items() %}{{ k }}{% endfor %}"
             "{% endfor %}",
             text),
      "('b', 1)");

  const std::string needs_null =
      "{% if m.content is none %}" + encoded + "{% else %}{{ m.content }}{% endif %}";
  const std::string needs_text = "{{ m.content + '.' }}" + encoded;
  const std::string shown = "<{\"b\": 1}>";
  for (const std::string content : {"", R"("content": "", )", R"("content": null, )"}) {
    EXPECT_EQ(render(needs_null, content + text), shown) << content;
    EXPECT_EQ(render(needs_text, content + text), "." + shown) << content;
  }
  EXPECT_EQ(render(needs_text, R"("content": "A", )" + text), "A." + shown);
  // Granite 3.3 omits calls, but its contents are texts.
  EXPECT_EQ(render("{{ m.content + '.' }}", R"("content": null, )" + text), ".");
  EXPECT_EQ(render(needs_null, R"("content": "A", )" + text), "A" + shown);
  EXPECT_EQ(render(needs_null, R"("content": " \n", )" + text), shown);
  // The form of which the template prints less.
  for (const std::string content : {"", R"("content": "", )", R"("content": null, )"}) {
    EXPECT_EQ(render("[{{ m.content }}]" + encoded, content + text), "[]" + shown) << content;
    EXPECT_EQ(render("{% if m.content is not none %}[{{ m.content }}]{% endif %}" + encoded, content + text),
              shown)
        << content;
  }
  EXPECT_EQ(render("{% if m.content is not none %}[{{ m.content }}]{% endif %}" + encoded,
                   R"("content": "A", )" + text),
            "[A]" + shown);
  // Clients omit null, and answers without calls are texts.
  const std::string any = "{% if m.content is none or '.' not in m.content %}" + encoded + "{% endif %}";
  for (const std::string content : {"", R"("content": "", )", R"("content": null, )"})
    EXPECT_EQ(render(any, content + text), shown) << content;
  for (const std::string answer : {R"("name": "x")", R"("content": null)", R"("content": "")"})
    EXPECT_EQ(render("[{{ m.content }}]", answer), "[]") << answer;
}

// Clients may omit optional fields of tools. Templates that do not fail get them as they are.
TEST(ChatTemplate, CompletesToolsIfTheTemplateFailsOtherwise) {
  const std::string tools = R"({"messages": [], "tools": [{"type": "function", "function": {"name": "f"}},
      {"type": "function", "function": {"name": "g", "description": "d", "parameters": {"properties": {"a": {}}}}}]})";
  const auto text = [&](const std::string& source) {
    return text_of(read_template("{% for t in tools or [] %}" + source + "{% endfor %}"), tools);
  };
  EXPECT_EQ(text("{{ t.function.name + ':' + t.function.description + ';' }}"), "f:;g:d;");
  EXPECT_EQ(
      text("{% for k, v in t.function.parameters.properties.items() %}{{ k + v.description }}{% endfor %}"),
      "a");
  EXPECT_EQ(text("{{ t.function | tojson }}"),
            R"({"name": "f"}{"name": "g", "description": "d", "parameters": {"properties": {"a": {}}}})");
  const ChatTemplate fails =
      read_template("{% for t in tools or [] %}\n{{ t.function.description + t.x }}{% endfor %}");
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { fails.render(tools); }),
              HasSubstr("chat template, line 2: 'description' is undefined"));
}

TEST(ChatTemplate, KeepsWholeNumbersOfAnySize) {
  const std::string variables =
      R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f",
    "arguments": "{\"a\": 9223372036854775808, \"b\": -123456789012345678901234567890, \"c\": 1e30}"}}]}]})";
  const auto text = [&](const char* source) { return text_of(read_template(source), variables); };
  EXPECT_EQ(text("{{ messages[0].tool_calls[0].function.arguments | tojson }}"),
            R"({"a": 9223372036854775808, "b": -123456789012345678901234567890, "c": 1e+30})");
  EXPECT_EQ(text("{% set a = messages[0].tool_calls[0].function.arguments %}{{ a.a }} {{ a.b is integer }} "
                 "{{ a.b is number }} {{ a.b < 0 }} {{ a.a == a.a }} {{ a.a == a.b }} {{ a.b is string }}"),
            "9223372036854775808 True True True True False False");
}

TEST(ChatTemplate, FindsSpecialTokensInEitherFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "special_tokens";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "chat_template.jinja") << "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}";
  std::ofstream(folder / "special_tokens_map.json")
      << R"({"bos_token": "<map>", "eos_token": {"content": "</map>"}})";
  const char* variables = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), variables), "<map></map>a");
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token": "<config>"})";
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), variables), "<config></map>a");
}

TEST(ChatTemplate, IsSelectedByNameAndByTools) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "several_templates";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer_config.json")
      << R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"},
                               {"name": "rag", "template": "R"}]})";
  const char* plain = R"({"messages": []})";
  const char* tools = R"({"messages": [], "tools": [{}]})";
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), plain), "D");
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), tools), "T");
  EXPECT_EQ(text_of(*ChatTemplate::find(folder, "rag"), tools), "R");
  EXPECT_THAT(error_message(ErrorCode::kNotFound, [&] { ChatTemplate::find(folder, "none"); }),
              HasSubstr("default, tool_use, rag"));
  std::ofstream(folder / "chat_template.jinja") << "J";
  EXPECT_EQ(text_of(*ChatTemplate::find(folder), plain), "J");
  EXPECT_FALSE(ChatTemplate::find(ATTEND_SOURCE_DIR "/tests/goldens/llama-bf16"));
}

struct Rejection {
  std::string source, message;
  ErrorCode code = ErrorCode::kCorruptFile;

  friend void PrintTo(const Rejection& error_text, std::ostream* out) { *out << error_text.source; }
};

class RejectedTemplate : public testing::TestWithParam<Rejection> {};

// Checkpoints in other formats provide tokenizer and template as text.
TEST(ChatTemplate, NeedsNoFiles) {
  const std::filesystem::path tiny = kTiny;
  test::MemoryCheckpoint checkpoint;
  EXPECT_FALSE(ChatTemplate::find(checkpoint));
  EXPECT_FALSE(Tokenizer::find(checkpoint));
  checkpoint.documents[CheckpointDocument::kTokenizer] = read_file(tiny / "tokenizer.json", size_t{64} << 20);
  checkpoint.documents[CheckpointDocument::kTokenizerConfig] =
      read_file(tiny / "tokenizer_config.json", size_t{1} << 20);
  checkpoint.template_text = "{{ bos_token }}{{ messages[0].content }}";
  const Tokenizer tokenizer = Tokenizer::from_path(tiny);
  const std::optional<Tokenizer> found = Tokenizer::find(checkpoint);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->encode("a few words"), tokenizer.encode("a few words"));
  EXPECT_EQ(found->eos_id(), tokenizer.eos_id());
  const auto chat = ChatTemplate::find(checkpoint);
  ASSERT_TRUE(chat);
  EXPECT_EQ(text_of(*chat, R"({"messages": [{"role": "user", "content": "hello"}]})"),
            tokenizer.token(*tokenizer.bos_id()) + "hello");
}

TEST_P(RejectedTemplate, ReportsTheLineAtParseTime) {
  const std::string path = write_template(GetParam().source);
  EXPECT_THAT(error_message(GetParam().code, [&] { ChatTemplate::find(kTemplates, path); }),
              HasSubstr(GetParam().message));
}

constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported;
INSTANTIATE_TEST_SUITE_P(
    Cases, RejectedTemplate,
    testing::Values(Rejection{"a\n{% if x %}", "line 2: expected {% endif %}"},
                    Rejection{"{{ 1 + }}", "found the end of the tag"},
                    Rejection{"{{ 'a }}", "a string without its end"},
                    Rejection{"{# a", "a comment without its end"},
                    Rejection{"{{ x", "a tag without its end"}, Rejection{"{{ x ? }}", "'?'"},
                    Rejection{"{{ (1 }}", "'}' closes nothing"}, Rejection{"{% endif %}", "endif"},
                    Rejection{"{% break %}", "outside of a loop"},
                    Rejection{"\n\n{% include 'x' %}", "line 3: {% include %}: not supported", kUnsupported},
                    Rejection{"{% autoescape true %}{% endautoescape %}", "{% autoescape %}", kUnsupported},
                    Rejection{"{{ x | urlize }}", "filter urlize", kUnsupported},
                    Rejection{"{{ x | map('urlize') }}", "filter urlize", kUnsupported},
                    Rejection{"{{ x is escaped }}", "test escaped", kUnsupported},
                    Rejection{"{{ x.encode() }}", "method encode()", kUnsupported},
                    Rejection{"{{ open('x') }}", "function open()", kUnsupported},
                    Rejection{"{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}",
                              "levels deep", kUnsupported},
                    Rejection{"{{ 1" +
                                  [] {
                                    std::string s;
                                    for (int i = 0; i < 500; ++i) s += "+1";
                                    return s;
                                  }() +
                                  " }}",
                              "in a row", kUnsupported},
                    Rejection{"\xff", "UTF-8"}));

TEST(ChatTemplate, ReportsTemplateErrors) {
  const auto error_text = [](const std::string& source, const char* variables = R"({"messages": []})") {
    return error_message(ErrorCode::kInvalidArgument, [&] { read_template(source).render(variables); });
  };
  EXPECT_EQ(error_text("{{ raise_exception('roles must alternate') }}"),
            "chat template: roles must alternate");
  EXPECT_EQ(error_text("a\n{{ messages[0].content.x }}"),
            "chat template, line 2: 'an index out of range' is undefined");
  EXPECT_EQ(error_text("{{ 'a' + 1 }}"), "chat template, line 1: a str + a int: not supported");
  EXPECT_THAT(error_text("", "[]"), HasSubstr("needs a JSON object"));
  EXPECT_THAT(error_text("", R"({"messages": 1})"), HasSubstr("needs a list"));
  EXPECT_THAT(error_text("", "{"), HasSubstr("expected JSON"));
}

TEST(ChatTemplate, LimitsMemoryAndSteps) {
  const auto error_text = [](const std::string& source) {
    return error_message(ErrorCode::kInvalidArgument,
                         [&] { read_template(source).render(R"({"messages": []})"); });
  };
  EXPECT_THAT(error_text("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("levels deep"));
  EXPECT_THAT(
      error_text("{% for a in range(2000) %}{% for b in 'x' * 1000 %}{{ b }}{{ b }}{% endfor %}{% endfor %}"),
      HasSubstr("steps"));
  EXPECT_THAT(error_text("{{ ('x' * 9000000) ~ ('x' * 9000000) }}"), HasSubstr("bytes"));
  EXPECT_THAT(error_text("{{ range(999999999) }}"), HasSubstr("100000 items"));
  EXPECT_THAT(
      error_text("{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}"),
      HasSubstr("levels deep"));
  EXPECT_THAT(error_text("{% set a = [] %}{% set b = [a] %}{{ a.append(b) }}"),
              HasSubstr("accepts no lists"));
}

// Templates that read much and copy little.
struct Reading {
  std::string name, setup, operation;
};
class ReadingTemplate : public testing::TestWithParam<Reading> {};

TEST_P(ReadingTemplate, IsLimited) {
  const std::string source = GetParam().setup + "{% for i in range(90000) %}{% if " + GetParam().operation +
                             " %}{% endif %}{% endfor %}";
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { read_template(source).render(R"({"messages": []})"); }),
              HasSubstr("reads more than 536870912 bytes"));
}

constexpr char kTexts[] =
    "{% set a = 'é' * 3000000 %}{% set b = a ~ 'x' %}{% set b = a ~ 'y' %}{% set c = 'é' * 3000000 %}";
constexpr char kLists[] = "{% set a = range(100000) | list %}{% set b = range(100000) | list %}";
constexpr char kShared[] =
    "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(150) %}{% set n.a = [n.a, n.a] %}"
    "{% set n.b = [n.b, n.b] %}{% endfor %}";

INSTANTIATE_TEST_SUITE_P(
    Operations, ReadingTemplate,
    testing::Values(Reading{"length", kTexts, "a | length == 5"}, Reading{"equal", kTexts, "a == c"},
                    Reading{"less", kTexts, "a < c"}, Reading{"in", kTexts, "'x' in a"},
                    Reading{"find", kTexts, "a.find('x') == 1"}, Reading{"search", kTexts, "b[1:] in a"},
                    Reading{"startswith", kTexts, "a.startswith(c)"},
                    Reading{"is_lower", kTexts, "a is lower"}, Reading{"int", kTexts, "a | int"},
                    Reading{"dict", kTexts, "{a: 1}[c]"}, Reading{"list_in", kLists, "-1 in a"},
                    Reading{"list_equal", kLists, "a == b"}, Reading{"list_count", kLists, "a.count(-1)"},
                    Reading{"list_pop", kLists, "a.pop(0) == -1"},
                    Reading{"shared_equal", kShared, "n.a == n.b"},
                    Reading{"shared_text", kShared, "n.a | string"},
                    Reading{"shared_json", kShared, "n.a | tojson"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace attend
