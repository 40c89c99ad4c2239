#include "attend/text/chat_template/chat_template.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/text/chat_template/conversation.h"
#include "attend/text/chat_template/syntax/parser.h"
#include "attend/text/chat_template/template_files.h"
#include "attend/text/chat_template/values/print.h"

namespace attend {

using chat_template::CallForms;
using chat_template::complete_tools;
using chat_template::ContentForms;
using chat_template::TemplateError;
using chat_template::Text;
using chat_template::Value;

namespace {

// Returns the name of earlier reasoning that a template reads: .name or ['name'].
std::string_view read_reasoning_name(std::string_view source) {
  for (const std::string_view name : chat_template::kReasoningNames)
    for (size_t at = source.find(name); at != source.npos; at = source.find(name, at + 1)) {
      const char before = at > 0 ? source[at - 1] : ' ';
      const char after = at + name.size() < source.size() ? source[at + name.size()] : ' ';
      const bool is_quoted = (before == '\'' || before == '"') && after == before;
      const bool goes_on = after == '_' || (after >= 'a' && after <= 'z') || after == '(';
      if (is_quoted || (before == '.' && !goes_on)) return name;
    }
  return {};
}

}  // namespace

struct ChatTemplate::Impl {
  // Argument of a known call.
  static constexpr std::string_view kCallKey = "attend_key", kCallValue = "attend value";

  struct Named {
    std::string name;
    chat_template::Block block;
    ContentForms forms;
    CallForms calls;
    std::string_view reasoning_name;  // name of earlier reasoning that the template reads; "": none
  };
  std::vector<Named> templates;
  std::string source;
  std::vector<std::pair<std::string, std::string>> special_tokens;

  const Named& choose(bool with_tools) const {
    for (const std::string_view name : {with_tools ? "tool_use" : "default", "default"})
      for (const Named& named : templates)
        if (named.name == name) return named;
    return templates.front();
  }

  // Throws TemplateError. `line` is set to the line of the error.
  Text run(const Named& named, const Value& variables, bool add_generation_prompt, std::time_t now,
           int& line) const {
    chat_template::Render render(now);
    const auto scope = std::make_shared<chat_template::Scope>();
    for (const auto& [name, function] : chat_template::global_functions()) scope->set(name, function);
    for (const auto& [role, token] : special_tokens) scope->set(role, Text(token));
    for (const auto& [name, value] : variables.dict()->items) scope->set(name.text()->bytes(), value);
    scope->set("add_generation_prompt", Value::boolean(add_generation_prompt));
    try {
      chat_template::run_block(named.block, render, scope);
    } catch (const TemplateError&) {
      line = render.line;
      throw;
    }
    return std::move(render.out);
  }

  // Returns true if the template renders a content of this form completely.
  bool renders(const Named& named, const Value& content) const {
    constexpr std::string_view kProbe = "attend probes this";
    const Value message = Value::dict({{Text("role"), Text("user")}, {Text("content"), content}});
    const Value variables = Value::dict({{Text("messages"), Value::list({message})}});
    int line = 0;
    try {
      const std::string shown = run(named, variables, true, 0, line).bytes();
      return shown.find(kProbe) != shown.npos && shown.find("'text'") == shown.npos &&
             shown.find("\"text\"") == shown.npos;
    } catch (const TemplateError&) {
      return false;
    }
  }

  ContentForms probe(const Named& named) const {
    const Text text("attend probes this");
    const Value part = Value::dict({{Text("type"), Text("text")}, {Text("text"), text}});
    ContentForms forms{renders(named, text), renders(named, Value::list({part}))};
    if (!forms.parts) forms.texts = true;
    forms.thinking = forms.parts && renders_thinking(named, part);
    return forms;
  }

  // Returns the text of a conversation with calls and their results; no value if the template rejects it.
  // `follow_up`: text of the user after the results; "": none.
  std::optional<std::string> render_calls(const Named& named, const CallForms& forms, const Value& content,
                                          size_t num_calls = 1, std::string_view follow_up = {}) const {
    const auto dict = [](std::vector<std::pair<Value, Value>> items) {
      return Value::dict(std::move(items));
    };
    const auto message = [&](const char* role, const Value& text) {
      return dict({{Text("role"), Text(role)}, {Text("content"), text}});
    };
    const Value name = Text("attend_calls");
    const Value parameter = dict({{Text("type"), Text("string")}, {Text("description"), Text("Text.")}});
    const Value schema = dict({{Text("type"), Text("object")},
                               {Text("properties"), dict({{Text(kCallKey), parameter}})},
                               {Text("required"), Value::list({Text(kCallKey)})}});
    const Value tool = dict(
        {{Text("type"), Text("function")},
         {Text("function"),
          dict({{Text("name"), name}, {Text("description"), Text("Text.")}, {Text("parameters"), schema}})}});
    std::vector<Value> calls, results;
    for (const std::string_view id : {"attendcal", "attendtwo"}) {
      if (calls.size() == num_calls) break;
      const Value arguments = dict({{Text(kCallKey), Text(kCallValue)}});
      calls.push_back(
          dict({{Text("id"), Text(id)},
                {Text("type"), Text("function")},
                {Text("function"), dict({{Text("name"), name}, {Text("arguments"), arguments}})}}));
      results.push_back(dict({{Text("role"), Text("tool")},
                              {Text("tool_call_id"), Text(id)},
                              {Text("name"), name},
                              {Text("content"), Text("attend answers this")}}));
    }
    const Value called = dict({{Text("role"), Text("assistant")},
                               {Text("content"), content},
                               {Text("tool_calls"), Value::list(std::move(calls))}});
    std::vector<Value> all = {message("user", Text("attend asks this")), called};
    all.insert(all.end(), results.begin(), results.end());
    if (!follow_up.empty()) all.push_back(message("user", Text(follow_up)));
    const Value messages = Value::list(std::move(all));
    int line = 0;
    try {
      chat_template::prepare_messages(messages, named.forms, forms, "");
      const Value variables = dict({{Text("messages"), messages}, {Text("tools"), Value::list({tool})}});
      return run(named, variables, false, 0, line).bytes();
    } catch (const TemplateError&) {
      return std::nullopt;
    }
  }

  static bool shows_call(const std::optional<std::string>& shown) {
    return shown && shown->find(kCallValue) != shown->npos;
  }

  // Objects are preferred, unless the template prints them in Python's notation and text as JSON.
  CallForms probe_calls(const Named& named) const {
    const Value object = Value::dict({{Text(kCallKey), Text(kCallValue)}});
    const std::string json = chat_template::to_json(object, {}).bytes();
    const auto try_forms = [&](bool text_arguments, CallForms& forms) {
      forms.text_arguments = text_arguments;
      const auto with_text = render_calls(named, forms, Text()),
                 with_null = render_calls(named, forms, Value::none());
      if (!shows_call(with_text) && !shows_call(with_null)) {
        // The template omits calls, and may fail for one of the contents.
        forms = {};
        if (with_text && !with_null) forms.empty = CallForms::Empty::kText;
        forms.separates_text = !with_text && with_null;
        if (forms.separates_text) forms.empty = CallForms::Empty::kNull;
        return false;
      }
      forms.separates_text = !shows_call(with_text);
      if (forms.separates_text || (shows_call(with_null) && with_null->size() < with_text->size()))
        forms.empty = CallForms::Empty::kNull;
      else if (*with_text != with_null.value_or(""))
        forms.empty = CallForms::Empty::kText;
      const std::string& shown = shows_call(with_text) ? *with_text : *with_null;
      return text_arguments ? shown.find(json) != shown.npos
                            : shown.find("'" + std::string(kCallKey) + "'") == shown.npos;
    };
    CallForms objects, texts;
    CallForms forms = try_forms(false, objects) || !try_forms(true, texts) ? objects : texts;
    probe_rejected(named, forms);
    return forms;
  }

  // Finds out which conversations the template rejects although it accepts a call and its result.
  void probe_rejected(const Named& named, CallForms& forms) const {
    if (!render_calls(named, forms, Text())) return;
    forms.single = !render_calls(named, forms, Text(), 2);
    constexpr std::string_view kFollowUp = "attend follows up";
    if (render_calls(named, forms, Text(), 1, kFollowUp)) return;
    CallForms joined = forms;
    joined.joins_user_text = true;
    const auto shown = render_calls(named, joined, Text(), 1, kFollowUp);
    forms.joins_user_text = shown && shown->find(kFollowUp) != shown->npos;
  }

  // Returns true if the template renders reasoning as a part of an assistant's content.
  bool renders_thinking(const Named& named, const Value& text_part) const {
    constexpr std::string_view kThought = "attend thinks this";
    const Value part = Value::dict({{Text("type"), Text("thinking")}, {Text("thinking"), Text(kThought)}});
    const auto message = [](const char* role, const Value& content) {
      return Value::dict({{Text("role"), Text(role)}, {Text("content"), content}});
    };
    const Value messages = Value::list(
        {message("user", Value::list({text_part})), message("assistant", Value::list({part, text_part}))});
    int line = 0;
    try {
      const std::string shown =
          run(named, Value::dict({{Text("messages"), messages}}), false, 0, line).bytes();
      return shown.find(kThought) != shown.npos && shown.find("'thinking'") == shown.npos &&
             shown.find("\"thinking\"") == shown.npos;
    } catch (const TemplateError&) {
      return false;
    }
  }
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path& path,
                                               const std::string& name_or_path) {
  return find(*open_checkpoint(path), name_or_path);
}

std::optional<ChatTemplate> ChatTemplate::find(const Checkpoint& checkpoint,
                                               const std::string& name_or_path) {
  const std::vector<chat_template::TemplateSource> sources =
      chat_template::find_templates(checkpoint, name_or_path);
  if (sources.empty()) return std::nullopt;
  auto impl = std::make_shared<Impl>();
  impl->special_tokens = chat_template::read_special_tokens(checkpoint);
  for (const chat_template::TemplateSource& source : sources) {
    impl->source += source.text;
    try {
      impl->templates.push_back({source.name, chat_template::parse_template(source.text), {}, {}, {}});
    } catch (const chat_template::SyntaxError& error) {
      fail(error.unsupported ? ErrorCode::kUnsupported : ErrorCode::kCorruptFile, source.where, ": line ",
           error.line, ": ", error.message, error.unsupported ? ": not supported in chat templates" : "");
    }
    Impl::Named& named = impl->templates.back();
    named.forms = impl->probe(named);
    named.calls = impl->probe_calls(named);
    named.reasoning_name = read_reasoning_name(source.text);
    // A field of the message is preferred. "thinking" may be read from a part.
    if (!named.reasoning_name.empty() && named.reasoning_name != "thinking") named.forms.thinking = false;
  }
  return ChatTemplate(std::move(impl));
}

const std::string& ChatTemplate::source() const { return impl_->source; }

bool ChatTemplate::accepts_parallel_calls() const { return !impl_->choose(/*with_tools=*/true).calls.single; }

std::vector<ChatTemplate::Part> ChatTemplate::render(std::string_view variables, bool add_generation_prompt,
                                                     std::time_t now) const {
  int line = 0;
  try {
    const Value values = chat_template::from_json(variables, Text::From::kUser);
    const Value* messages = values.dict() ? values.dict()->find(Text("messages")) : nullptr;
    if (!messages) chat_template::fail_template("needs a JSON object with \"messages\"");
    const Value* tools = values.dict()->find(Text("tools"));
    const Impl::Named& named = impl_->choose(tools && is_true(*tools));
    chat_template::prepare_messages(*messages, named.forms, named.calls, named.reasoning_name);
    const auto run = [&](int& at) { return impl_->run(named, values, add_generation_prompt, now, at); };
    Text text;
    try {
      text = run(line);
    } catch (const TemplateError& error) {
      if (error.raised || !tools || !complete_tools(*tools)) throw;
      const TemplateError first = error;
      try {
        int other_line = 0;
        text = run(other_line);
      } catch (const TemplateError&) {
        throw first;
      }
    }
    std::vector<Part> parts;
    for (size_t i = 0; i < text.size(); ++i) {
      const bool from_user = text.from(i) == Text::From::kUser;
      if (parts.empty() || parts.back().from_user != from_user) parts.push_back({{}, from_user});
      parts.back().text += text.bytes()[i];
    }
    return parts;
  } catch (const TemplateError& error) {
    if (error.raised) fail(ErrorCode::kInvalidArgument, "chat template: ", error.message);
    if (line == 0) fail(ErrorCode::kInvalidArgument, "chat template: ", error.message);
    fail(ErrorCode::kInvalidArgument, "chat template, line ", line, ": ", error.message);
  }
}

std::vector<ChatTemplate::Part> ChatTemplate::render_continued(std::string_view variables,
                                                               std::string_view content,
                                                               std::time_t now) const {
  std::vector<Part> parts = render(variables, /*add_generation_prompt=*/false, now);
  std::string text;
  for (const Part& part : parts) text += part.text;
  constexpr std::string_view kSpaces = " \n\t\r";
  const size_t first = std::min(content.find_first_not_of(kSpaces), content.size());
  const std::string_view left = content.substr(first);
  const std::string_view both = left.substr(0, left.find_last_not_of(kSpaces) + 1);
  const size_t at = text.rfind(both);
  if (both.empty() || at == std::string::npos)
    fail(ErrorCode::kInvalidArgument,
         "continue_final_message: the chat template does not render the last message's content");
  // Templates may remove spaces at the end of the content.
  size_t size = at + (std::string_view(text).substr(at).starts_with(left) ? left.size() : both.size());
  std::vector<Part> kept;
  for (Part& part : parts) {
    if (size == 0) break;
    part.text.resize(std::min(part.text.size(), size));
    size -= part.text.size();
    kept.push_back(std::move(part));
  }
  return kept;
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer, std::string_view variables,
                                          bool add_generation_prompt, std::time_t now) const {
  return encode_parts(tokenizer, render(variables, add_generation_prompt, now));
}

std::vector<int32_t> encode_parts(const Tokenizer& tokenizer, const std::vector<ChatTemplate::Part>& parts) {
  std::vector<Tokenizer::Part> pieces;
  for (const ChatTemplate::Part& part : parts) pieces.push_back({part.text, !part.from_user});
  return tokenizer.encode(pieces);
}

}  // namespace attend
