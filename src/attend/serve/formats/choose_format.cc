#include "attend/serve/formats/choose_format.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "attend/base/error.h"

namespace attend::serve {
namespace {

constexpr std::string_view kQuestion = "attend asks this", kThought = "attend thinks this",
                           kAnswer = "attend answers this";
constexpr std::string_view kTool = "probe_weather", kValue = "Zagreb";

std::optional<std::string> rendered(const ChatTemplate& chat, const Json& variables, bool prompt) {
  try {
    std::string text;
    for (const ChatTemplate::Part& part : chat.render(variables.dump(), prompt, std::time_t{0}))
      text += part.text;
    return text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Json probe_tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "probe_weather", "description": "Weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "City."},
    "days": {"type": "integer", "description": "Days."}}, "required": ["city", "days"]}}}])");
}

Json question() { return {{"role", "user"}, {"content", std::string(kQuestion)}}; }

std::string probe_id(ToolFormat::CallIds form) { return written_call_id(form, "abcdefgh1", kTool, 0); }

Json probe_call(ToolFormat::CallIds form = {}) {
  const Json function = {{"name", std::string(kTool)}, {"arguments", R"({"city": "Zagreb", "days": 3})"}};
  return {{"id", probe_id(form)}, {"type", "function"}, {"function", function}};
}

Json probe_result(ToolFormat::CallIds form = {}) {
  return {
      {"role", "tool"}, {"tool_call_id", probe_id(form)}, {"name", std::string(kTool)}, {"content", "sunny"}};
}

// Returns a marker for messages, without line breaks.
std::string shown(std::string_view marker) {
  return std::string(marker.substr(0, marker.find_last_not_of('\n') + 1));
}

// Returns the text of the assistant's turn: after the header that precedes every answer. `form`: of the
// call's id, from which some templates make the name.
std::optional<std::string> rendered_call(const ChatTemplate& chat, ToolFormat::CallIds form) {
  const Json tools = probe_tools();
  const Json assistant_turn = {
      {"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({probe_call(form)})}};
  const Json messages = Json::array({question(), assistant_turn, probe_result(form)});
  const auto text = rendered(chat, {{"messages", messages}, {"tools", tools}}, false);
  if (!text) return std::nullopt;
  const size_t asked = text->rfind(kQuestion), called = text->rfind(kValue);
  if (asked == text->npos || called == text->npos || called < asked) return std::nullopt;
  // The prompt for an answer ends where the turn begins, except for tags that it opens.
  std::string turn = text->substr(asked + kQuestion.size());
  const auto prompt = rendered(chat, {{"messages", Json::array({question()})}, {"tools", tools}}, true);
  const size_t at = prompt ? prompt->rfind(kQuestion) : std::string::npos;
  if (at == std::string::npos) return turn;
  const std::string header = prompt->substr(at + kQuestion.size());
  size_t common = 0;
  while (common < std::min(header.size(), turn.size()) && header[common] == turn[common]) ++common;
  // The common text may end within a marker.
  const size_t bracket = turn.substr(0, common).find_last_of("<[");
  if (common < header.size() && bracket != std::string::npos &&
      turn.substr(bracket, common - bracket).find_first_of(">]") == std::string::npos)
    common = bracket;
  return turn.substr(common);
}

// Returns the number of bytes of text before the known call, or no value if the format does not read it.
std::optional<size_t> text_before_call(const ToolFormat& format, std::string_view turn) {
  const Json tools = probe_tools();
  const std::vector<Tool> known = {{std::string(kTool), tools[0]["function"]["parameters"]}};
  const std::unique_ptr<AnswerParser> parser = make_call_parser(format, known);
  AnswerParts parts;
  parser->push(turn, parts);
  parser->finish(parts, /*complete=*/true);
  size_t num_text = 0;
  const std::vector<AnswerPart>& all = parts.all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind != AnswerPart::Kind::kCall) {
      num_text += all[i].text.size();
      continue;
    }
    const Json arguments = i + 1 < all.size() ? Json::parse(all[i + 1].text, nullptr, false) : Json();
    if (arguments == Json{{"city", std::string(kValue)}, {"days", 3}}) return num_text;
    return std::nullopt;
  }
  return std::nullopt;
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

// Returns true if the turn contains the call as the format's grammar writes it, apart from spaces.
bool is_canonical(const ToolFormat& format, std::string_view turn) {
  const ToolFormat::Written& written = format.written;
  const std::string call = std::string(written.before) + std::string(written.begin) + std::string(kTool) +
                           std::string(written.middle);
  return without_spaces(std::string(turn)).find(without_spaces(call)) != std::string::npos;
}

std::string join_names(const std::vector<const ToolFormat*>& formats) {
  std::string names;
  for (const ToolFormat* format : formats) names += (names.empty() ? "" : ", ") + std::string(format->name());
  return names;
}

// Markers without which a text does not describe the format.
std::vector<std::string_view> start_markers(const ToolFormat& format) {
  std::vector<std::string_view> markers(format.opens.begin(), format.opens.end());
  markers.resize(std::min<size_t>(markers.size(), 1));
  for (const std::string_view marker : {format.name_open, format.tags.key_open})
    if (!marker.empty() && std::ranges::find(markers, marker) == markers.end()) markers.push_back(marker);
  return markers;
}

// Returns the formats with the most markers among those with all markers in the text.
std::vector<const ToolFormat*> described_formats(std::string_view text) {
  std::vector<const ToolFormat*> found;
  size_t most = 0;
  for (const ToolFormat& format : tool_formats()) {
    const std::vector<std::string_view> markers = start_markers(format);
    if (format.at_start || !std::ranges::all_of(markers, [&](std::string_view marker) {
          return text.find(marker) != text.npos;
        }))
      continue;
    if (markers.size() > most) found.clear();
    most = std::max(most, markers.size());
    if (markers.size() == most) found.push_back(&format);
  }
  return found;
}

// Returns the prompt of a request with tools; no value if the template does not render them.
std::optional<std::string> rendered_tools(const ChatTemplate& chat) {
  auto with = rendered(chat, {{"messages", Json::array({question()})}, {"tools", probe_tools()}}, true);
  const auto without = rendered(chat, {{"messages", Json::array({question()})}}, true);
  return with != without ? std::move(with) : std::nullopt;
}

// Returns the formats that the instructions for tools describe, otherwise those in the template's source,
// such as a comment or the removal of calls from earlier answers.
std::vector<const ToolFormat*> described_formats(const ChatTemplate& chat, bool& renders_tools) {
  const auto prompt = rendered_tools(chat);
  std::vector<const ToolFormat*> found;
  renders_tools = prompt.has_value();
  if (prompt) found = described_formats(*prompt);
  return found.empty() ? described_formats(chat.source()) : found;
}

// Name of the choice by the chat template, as in SGLang and vLLM.
bool is_auto(const std::string& name) { return name.empty() || name == "auto"; }

constexpr const char* kNoTemplate = "the model has no chat template";

}  // namespace

std::string ModelFormats::tools_line() const {
  return "tool calls: " + std::string(tools.format ? tools.format->name() : "none") + " (" + tools.reason +
         ")";
}

std::string ModelFormats::reasoning_line() const {
  return "reasoning: " + std::string(reasoning.format ? reasoning.format->name() : "part of the text") +
         " (" + reasoning.reason + ")";
}

ModelFormats choose_formats(const std::string& tool_call_parser, const std::string& reasoning_parser,
                            const std::optional<ChatTemplate>& chat) {
  ModelFormats chosen;
  if (!is_auto(tool_call_parser)) {
    chosen.tools = {&parse_tool_format(tool_call_parser), "--tool-call-parser " + tool_call_parser};
    chosen.tools.omits_tools = chat && !rendered_tools(*chat);
  } else {
    chosen.tools = chat ? choose_tool_format(*chat) : ToolChoiceByTemplate{nullptr, kNoTemplate, false};
  }
  if (!is_auto(reasoning_parser))
    chosen.reasoning = {reasoning_parser == "none" ? nullptr : &parse_reasoning_format(reasoning_parser),
                        "--reasoning-parser " + reasoning_parser};
  else
    chosen.reasoning =
        chat ? choose_reasoning_format(*chat) : ReasoningChoiceByTemplate{nullptr, kNoTemplate};
  return chosen;
}

ToolChoiceByTemplate choose_tool_format(const ChatTemplate& chat) {
  std::vector<const ToolFormat*> found;
  std::string how = "reads the call that the chat template renders";
  using CallIds = ToolFormat::CallIds;
  const auto any = rendered_call(chat, CallIds::kAny),
             numbered = rendered_call(chat, CallIds::kNameAndNumber);
  const auto turn_of = [&](const ToolFormat& format) -> const std::optional<std::string>& {
    return format.ids == CallIds::kNameAndNumber ? numbered : any;
  };
  if (any || numbered) {
    size_t least = std::string::npos;
    for (const ToolFormat& format : tool_formats()) {
      const auto& turn = turn_of(format);
      const auto num_text = turn ? text_before_call(format, *turn) : std::nullopt;
      if (!num_text || *num_text > least) continue;
      if (*num_text < least) found.clear();
      least = *num_text;
      found.push_back(&format);
    }
    // Parsers accept more than their models write.
    const auto is_not_canonical = [&](const ToolFormat* format) {
      return !is_canonical(*format, *turn_of(*format));
    };
    if (!std::ranges::all_of(found, is_not_canonical)) std::erase_if(found, is_not_canonical);
    if (found.empty())
      return {nullptr, "no known format reads the call that the chat template renders", false};
  } else {
    bool renders_tools = false;
    found = described_formats(chat, renders_tools);
    how = "is described by the chat template";
    if (found.empty())
      return {nullptr, "the chat template neither renders a call nor describes a known format",
              renders_tools};
  }
  if (found.size() > 1)
    return {nullptr, "several formats fit the chat template: " + join_names(found), false};
  return {found.front(), std::string(found.front()->name()) + " " + how, false};
}

namespace {

// Returns the format with the most markers whose markers are all in the instructions that the template writes
// only if reasoning is enabled, or null.
const ReasoningFormat* described_reasoning(const ChatTemplate& chat) {
  const Json messages = Json::array({question()});
  // Without the prompt for an answer, which may close the reasoning.
  const auto with =
      rendered(chat, {{"messages", messages}, {"enable_thinking", true}, {"thinking", true}}, false);
  const auto without =
      rendered(chat, {{"messages", messages}, {"enable_thinking", false}, {"thinking", false}}, false);
  if (!with || !without) return nullptr;
  const ReasoningFormat* found = nullptr;
  size_t most = 0;
  for (const ReasoningFormat& format : reasoning_formats()) {
    std::vector<std::string_view> markers(format.dropped.begin(), format.dropped.end());
    markers.insert(markers.end(), {format.open, format.close});
    const bool fits = std::ranges::all_of(markers, [&](std::string_view marker) {
      return with->find(marker) != std::string::npos && without->find(marker) == std::string::npos;
    });
    if (fits && markers.size() > most) found = &format, most = markers.size();
  }
  return found;
}

}  // namespace

ReasoningChoiceByTemplate choose_reasoning_format(const ChatTemplate& chat) {
  Json answer = {{"role", "assistant"}, {"content", std::string(kAnswer)}};
  Json call = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({probe_call()})}};
  for (const char* name : {"reasoning_content", "reasoning", "thinking"})
    answer[name] = call[name] = std::string(kThought);
  // Some templates render reasoning only before calls, and some only if it is enabled.
  const Json switches = {{"enable_thinking", true}, {"thinking", true}, {"tools", probe_tools()}};
  const auto conversation = [&](const Json& messages) {
    Json variables = switches;
    variables["messages"] = messages;
    return variables;
  };
  const auto texts = {rendered(chat, conversation(Json::array({question(), answer})), false),
                      rendered(chat, conversation(Json::array({question(), call, probe_result()})), false)};
  const auto prompt = rendered(chat, conversation(Json::array({question()})), true);
  for (const ReasoningFormat& format : reasoning_formats()) {
    for (const auto& text : texts) {
      const size_t thought = text ? text->rfind(kThought) : std::string::npos;
      if (thought == std::string::npos) continue;
      const std::string_view all = *text;
      const size_t open = all.rfind(format.open, thought);
      if (open != all.npos && all.find_first_not_of(" \n", open + format.open.size()) == thought &&
          all.find(format.close, thought) != all.npos)
        return {&format, "the chat template renders reasoning between " + shown(format.open) + " and " +
                             shown(format.close)};
    }
    if (prompt && opens_reasoning(format, *prompt))
      return {&format, "the chat template opens " + shown(format.open)};
  }
  if (const ReasoningFormat* format = described_reasoning(chat))
    return {format, "the chat template's instructions describe reasoning between " + shown(format->open) +
                        " and " + shown(format->close)};
  return {nullptr, "the chat template renders no reasoning"};
}

namespace {

bool is_special_token(std::string_view text, const Tokenizer& tokenizer) {
  const auto id = tokenizer.token_id(text);
  return id && tokenizer.is_special(*id);
}

void add_tools_by_vocabulary(const Tokenizer& tokenizer, ToolChoiceByTemplate& tools) {
  if (!tools.only_renders_tools) return;
  std::vector<const ToolFormat*> found;
  for (const ToolFormat& format : tool_formats()) {
    const std::vector<std::string_view> markers = start_markers(format);
    if (!format.at_start && std::ranges::all_of(markers, [&](std::string_view marker) {
          return is_special_token(marker, tokenizer);
        }))
      found.push_back(&format);
  }
  if (found.size() != 1) return;
  tools.format = found.front();
  tools.reason = "the chat template renders only the tools; the vocabulary has the special tokens of " +
                 std::string(found.front()->name());
}

}  // namespace

void add_formats_by_vocabulary(const std::string& reasoning_parser, const Tokenizer& tokenizer,
                               ModelFormats& formats) {
  add_tools_by_vocabulary(tokenizer, formats.tools);
  if (formats.reasoning.format || !is_auto(reasoning_parser)) return;
  const ReasoningFormat* found = nullptr;
  for (const ReasoningFormat& format : reasoning_formats()) {
    if (!begins_with_special_tokens(format, tokenizer)) continue;
    // Formats with the same tags differ by other markers.
    if (found && found->open == format.open) continue;
    if (found) return;
    found = &format;
  }
  if (!found) return;
  formats.reasoning.format = found;
  formats.reasoning.reason += "; the vocabulary has the special tokens of " + shown(found->open);
}

}  // namespace attend::serve
