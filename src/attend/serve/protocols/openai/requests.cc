// Requests of OpenAI's /v1/chat/completions and /v1/completions.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/fields/image_fields.h"
#include "attend/serve/protocols/fields/request_fields.h"
#include "attend/serve/protocols/fields/thinking_fields.h"
#include "attend/serve/protocols/openai/replies.h"
#include "attend/serve/protocols/openai/tool_fields.h"

namespace attend::serve {
namespace {

// Reads the fields that both endpoints share.
void read_common(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job) {
  read_request(fields, job);
  job.params.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  if (const auto best_of = fields.integer("best_of", 1, kMaxChoices);
      best_of && *best_of != 1 && *best_of != job.params.n)
    reject("best_of", "best_of ", *best_of, ": expected 1, or n");
  if (const Json* options = fields.find("stream_options")) {
    if (!job.stream) reject("stream_options", "stream_options: only with stream true");
    const Fields inner(*options, "stream_options.");
    job.include_usage = inner.boolean("include_usage").value_or(false);
    job.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  }
  read_sampling(fields, defaults, job);
}

void check_message(const Json& message, const std::string& where) {
  const Fields fields(message, where + ".");
  if (fields.string("role").value_or("").empty())
    reject(where + ".role", where, ".role: missing; expected a string");
  for (const char* key : {"name", "reasoning_content", "reasoning", "thinking"}) fields.string(key);
  const Json* content = fields.find("content");
  if (!content || content->is_string()) {
    if (!content && *fields.string("role") != "assistant")
      reject(where + ".content", where, ".content: missing");
    return;
  }
  if (!content->is_array())
    reject(where + ".content", where, ".content ", excerpt(*content),
           ": expected a string or a list of parts");
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string place = where + ".content[" + std::to_string(i) + "]";
    const Fields inner((*content)[i], place + ".");
    const std::string type = inner.string("type").value_or("");
    // take_images() checks these.
    if (type == "image_url" && fields.string("role") == "user") continue;
    // A text that the assistant wrote, which template_variables() passes on as such.
    if (type == "refusal" && fields.string("role") == "assistant") {
      if (!inner.string("refusal")) reject(place + ".refusal", place, ".refusal: missing; expected a string");
      continue;
    }
    if (type != "text")
      reject_unsupported(place + ".type", "parts of type ", excerpt(type),
                         " are not supported; expected \"text\" or, of a user, \"image_url\"");
    if (!inner.string("text")) reject(place + ".text", place, ".text: missing; expected a string");
  }
}

// Checks a call of an earlier answer, and returns its id, "" if it has none.
std::string check_call(const Json& call, const std::string& where) {
  const Fields fields(call, where + ".");
  if (const std::string type = fields.string("type").value_or("function"); type != "function")
    reject_unsupported(where + ".type", excerpt(type), " is not supported; expected \"function\"");
  const Json* function = fields.find("function");
  if (!function) reject_with_code(tool_error::kInvalidCall, where + ".function", where, ".function: missing");
  const Fields inner(*function, where + ".function.");
  if (inner.string("name").value_or("").empty())
    reject_with_code(tool_error::kInvalidCall, where + ".function.name", where,
                     ".function.name: missing; expected the name of a tool");
  check_call_arguments(inner.name("arguments"), inner.find("arguments"));
  return fields.string("id").value_or("");
}

// Checks the calls of earlier answers. The result of a tool follows its call.
void check_calls(const Json& messages) {
  bool has_calls = false;
  std::set<std::string> ids;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    const Fields fields(messages[i], where + ".");
    if (const Json* calls = fields.find("tool_calls")) {
      if (!calls->is_array())
        reject(where + ".tool_calls", where, ".tool_calls ", excerpt(*calls), ": expected a list");
      for (size_t j = 0; j < calls->size(); ++j) {
        has_calls = true;
        ids.insert(check_call((*calls)[j], where + ".tool_calls[" + std::to_string(j) + "]"));
      }
    }
    if (*fields.string("role") != "tool") continue;
    if (!has_calls)
      reject_with_code(tool_error::kNoCall, where, where,
                       ": the result of a tool without a call; expected an earlier message with tool_calls");
    const std::string id = fields.string("tool_call_id").value_or("");
    if (!id.empty() && !ids.contains("") && !ids.contains(id))
      reject_with_code(tool_error::kNoCall, where + ".tool_call_id", where, ".tool_call_id ", excerpt(id),
                       ": expected the id of an earlier call");
  }
}

// Replaces refusals by texts, which templates know.
void replace_refusals(Json& messages) {
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    for (Json& part : *content)
      if (has_type(part, "refusal")) part = {{"type", "text"}, {"text", part["refusal"]}};
  }
}

// Adds the names of tools to their results, as the other APIs do: some templates print them.
void name_results(Json& messages) {
  std::unordered_map<std::string, std::string> names;  // by the id of the call
  for (Json& message : messages) {
    const Fields fields(message);
    if (const Json* calls = fields.find("tool_calls"))
      for (const Json& call : *calls)
        if (const auto id = Fields(call).string("id"))
          names[*id] = call["function"]["name"].get<std::string>();
    if (fields.string("role") != "tool" || fields.has("name")) continue;
    const auto found = names.find(fields.string("tool_call_id").value_or(""));
    if (found != names.end()) message["name"] = found->second;
  }
}

// Returns the variables of the template.
std::string template_variables(const Fields& fields, const ChatFormats& formats, GenerationJob& job) {
  Json variables = Json::object();
  if (const Json* own = fields.find("chat_template_kwargs")) {
    const Fields checked(*own, "chat_template_kwargs.");
    variables = *own;
  }
  variables["messages"] = *fields.find("messages");
  replace_refusals(variables["messages"]);
  name_results(variables["messages"]);
  job.images = take_images(variables["messages"]);
  for (const char* key : {"tools", "documents", "verbosity"})
    if (const Json* value = fields.find(key)) variables[key] = *value;
  set_thinking(read_chat_thinking(fields), formats, variables, job);
  const std::optional<bool> generation_prompt = fields.boolean("add_generation_prompt");
  job.add_generation_prompt = generation_prompt.value_or(true);
  if (fields.boolean("continue_final_message").value_or(false)) {
    Json& messages = variables["messages"];
    if (generation_prompt.value_or(false))
      reject("continue_final_message", "continue_final_message: not with add_generation_prompt");
    if (messages.back()["role"] != "assistant" || !messages.back().value("content", Json()).is_string())
      reject("continue_final_message",
             "continue_final_message: expected a last message of the assistant whose content is a string");
    job.continued = messages.back()["content"].get<std::string>();
    if (job.continued.find_first_not_of(" \n\t\r") == std::string::npos) {
      // Nothing to continue: the answer begins after the generation prompt.
      messages.erase(messages.size() - 1);
      job.continued.clear();
      job.add_generation_prompt = true;
    }
  }
  return json_text(variables);
}

GenerationJob read_chat(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats) {
  const Fields fields(body);
  GenerationJob job;
  read_common(fields, defaults, job);
  read_max_tokens(fields, {"max_completion_tokens"}, job);
  const auto num_top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (fields.boolean("logprobs").value_or(false))
    job.params.logprobs = static_cast<int>(num_top.value_or(0));
  else if (num_top.value_or(0) > 0)
    reject("top_logprobs", "top_logprobs: only with logprobs true");
  const Json* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    reject("messages", "messages: expected a list of at least one message");
  for (size_t i = 0; i < messages->size(); ++i)
    check_message((*messages)[i], "messages[" + std::to_string(i) + "]");
  check_calls(*messages);
  std::vector<Tool> tools = read_tools(fields);
  const ToolChoice choice = read_tool_choice(fields, tools);
  set_answer_format(std::move(tools), choice, fields.boolean("separate_reasoning").value_or(true), formats,
                    job);
  check_num_completions(job);
  job.variables = template_variables(fields, formats, job);
  reject_unsupported_fields(fields);
  std::ranges::move(fields.unknown(), std::back_inserter(job.ignored));
  return job;
}

GenerationJob read_completion(const Json& body, const SamplingDefaults& defaults, const ChatFormats&) {
  const Fields fields(body);
  GenerationJob job;
  job.params.max_new_tokens = 16;
  job.has_max_tokens = true;
  read_common(fields, defaults, job);
  read_max_tokens(fields, {"max_tokens"}, job);
  job.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  job.echo = fields.boolean("echo").value_or(false);
  if (const Json* logprobs = fields.find("logprobs"); logprobs && *logprobs != false) {
    job.params.logprobs = static_cast<int>(*fields.integer("logprobs", 0, kMaxTopLogprobs));
    if (job.echo) job.params.prompt_logprobs = job.params.logprobs;
  }
  const Json* prompt = fields.find("prompt");
  if (!prompt) reject("prompt", "prompt: missing; expected a string, token ids, or a list of these");
  if (prompt->is_string()) {
    job.prompts.emplace_back(prompt->get<std::string>());
  } else if (prompt->is_array() && !prompt->empty() && prompt->front().is_number()) {
    job.prompts.emplace_back(read_token_ids(*prompt, "prompt"));
  } else if (prompt->is_array()) {
    for (const Json& item : *prompt) {
      if (item.is_string())
        job.prompts.emplace_back(item.get<std::string>());
      else
        job.prompts.emplace_back(read_token_ids(item, "prompt"));
    }
  }
  if (job.prompts.empty() || job.prompts.size() > kMaxPrompts)
    reject("prompt", "prompt ", excerpt(*prompt), ": expected a string, token ids, or a list of 1 to ",
           kMaxPrompts, " of these");
  check_num_completions(job);
  reject_unsupported_fields(fields);
  std::ranges::move(fields.unknown(), std::back_inserter(job.ignored));
  return job;
}

std::string max_tokens_or(std::string_view param) {
  return param == "max_new_tokens" ? "max_tokens" : std::string(param);
}

}  // namespace

constexpr Endpoint kChatCompletions = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .has_own_ids = false,
    .read = read_chat,
    .client_field_name = [](std::string_view param,
                            bool) { return param == "prompt" ? "messages" : max_tokens_or(param); },
    .shows_stop_token = false,
    .make_writer = [](const ReplyHead& head, const GenerationJob& job) -> std::unique_ptr<ReplyWriter> {
      return std::make_unique<OpenAiReplies>(OpenAiReplies::Kind::kChat, head, job);
    }};

constexpr Endpoint kCompletions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .has_own_ids = false,
    .read = read_completion,
    .client_field_name = [](std::string_view param, bool) { return max_tokens_or(param); },
    .shows_stop_token = false,
    .make_writer = [](const ReplyHead& head, const GenerationJob& job) -> std::unique_ptr<ReplyWriter> {
      return std::make_unique<OpenAiReplies>(OpenAiReplies::Kind::kCompletion, head, job);
    }};

}  // namespace attend::serve
