#include "attend/serve/protocols/anthropic/messages.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/anthropic/conversation.h"
#include "attend/serve/protocols/anthropic/replies.h"
#include "attend/serve/protocols/anthropic/tools.h"
#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/fields/request_fields.h"
#include "attend/serve/protocols/fields/thinking_fields.h"

namespace attend::serve {
namespace {

// Rejects fields that would change the answer, and reads those that do not.
void read_other_fields(const Fields& fields, GenerationJob& job) {
  struct Row {
    const char* key;
    const char* why;
  };
  static constexpr Row kRows[] = {
      {"container", "code execution is not supported"},
      {"mcp_servers", "MCP servers are not supported; call their tools in the client"},
      {"inference_geo", "not supported; this server is in one place"},
      {"n", "one answer per request"},
      {"best_of", "one answer per request"}};
  for (const Row& row : kRows)
    if (const Json* value = fields.find(row.key); value && !value->empty() && *value != 1)
      reject_unsupported(row.key, row.why);
  // Clients that keep the conversation on the server send all of it after an error with this code.
  if (const Json* thread = fields.find("thread"); thread && *thread != false)
    throw ApiError{400, "thread: not supported; send the whole conversation", "thread",
                   "thread_unsupported_request"};
  if (const auto speed = fields.string("speed"); speed && *speed != "standard")
    reject_unsupported("speed", excerpt(*speed), " is not supported; expected \"standard\"");
  if (const Json* metadata = fields.find("metadata")) Fields(*metadata, "metadata.").string("user_id");
  if (const Json* diagnostics = fields.find("diagnostics")) {
    Fields(*diagnostics, "diagnostics.").string("previous_message_id");
    job.message.wants_diagnostics = true;
  }
  const Json* management = fields.find("context_management");
  const Json* edits = management ? Fields(*management, "context_management.").find("edits") : nullptr;
  if (!edits) return;
  if (!edits->is_array())
    reject("context_management.edits", "context_management.edits ", excerpt(*edits), ": expected a list");
  for (const Json& edit : *edits) {
    const Fields inner(edit, "context_management.edits.");
    const Json* keep = inner.find("keep");
    const bool keeps_all = keep && *keep == "all";
    if (inner.string("type").value_or("") != "clear_thinking_20251015" || !keeps_all)
      reject_unsupported("context_management.edits", excerpt(edit),
                         ": edits of the conversation are not supported; expected clear_thinking_20251015 "
                         "that keeps \"all\"");
  }
}

void read_thinking(const Fields& fields, ThinkingRequest& request, GenerationJob& job) {
  const Json* given = fields.find("thinking");
  if (!given) return;
  const Fields inner(*given, "thinking.");
  const std::string type = inner.string("type").value_or("");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    reject("thinking.type", "thinking ", excerpt(*given),
           R"(: expected the type "enabled", "adaptive" or "disabled")");
  const bool thinks = type != "disabled";
  request.enabled = thinks;
  request.enabled_field = "thinking.type";
  if (!thinks) job.message.thinking = MessageOptions::Thinking::kHidden;
  if (const auto display = inner.string("display"); display && thinks) {
    if (*display != "summarized" && *display != "omitted")
      reject("thinking.display", "thinking.display ", excerpt(*display),
             R"(: expected "summarized" or "omitted")");
    if (*display == "omitted") job.message.thinking = MessageOptions::Thinking::kOmitted;
  }
  if (type != "enabled") return;
  const auto budget = inner.integer("budget_tokens", 1, INT32_MAX);
  if (!budget)
    reject("thinking.budget_tokens", "thinking.budget_tokens: missing; expected a number of tokens");
  if (fields.has("max_tokens") && *budget >= job.params.max_new_tokens)
    reject("thinking.budget_tokens", "thinking.budget_tokens ", *budget, ": expected less than max_tokens, ",
           job.params.max_new_tokens);
  // Agents send a budget to every model, so that it is not required.
  request.max_tokens = static_cast<int>(*budget);
}

// Reads the format of the text: output_config.format, or output_format as in earlier versions of the API.
void read_output_format(const Json& format, const std::string& where, GenerationJob& job) {
  const Fields fields(format, where + ".");
  if (fields.string("type").value_or("") != "json_schema")
    reject(where + ".type", where, " ", excerpt(format), ": expected the type \"json_schema\"");
  const Json* schema = fields.find("schema");
  if (!schema || !schema->is_object())
    reject(where + ".schema", where, ".schema: expected a JSON schema, an object");
  if (job.grammar) reject(where, where, ": ", job.grammar->param, " already sets the format of the text");
  // Assigned in place: g++ 12 warns of an uninitialized string in a temporary object.
  job.grammar.emplace();
  job.grammar->grammar = {GrammarKind::kJsonSchema, json_text(*schema)};
  job.grammar->param = where;
}

void read_output(const Fields& fields, ThinkingRequest& thinking, GenerationJob& job) {
  if (const Json* format = fields.find("output_format")) read_output_format(*format, "output_format", job);
  const Json* output = fields.find("output_config");
  if (!output) return;
  const Fields inner(*output, "output_config.");
  if (const Json* format = inner.find("format")) read_output_format(*format, "output_config.format", job);
  thinking.effort = inner.string("effort");
  thinking.effort_field = inner.name("effort");
}

void read_limits(const Fields& fields, bool must_have_max_tokens, GenerationJob& job) {
  const auto max_tokens = fields.integer("max_tokens", 0, INT32_MAX);
  if (must_have_max_tokens && !max_tokens)
    reject("max_tokens", "max_tokens: missing; expected a number of tokens");
  job.has_max_tokens = true;
  // 0 computes the prompt for later requests. The engine generates one token at least, which is not returned.
  job.message.has_answer = max_tokens.value_or(1) > 0;
  job.params.max_new_tokens = static_cast<int>(std::max<int64_t>(max_tokens.value_or(1), 1));
  for (std::string& stop : fields.strings("stop_sequences")) {
    if (stop.empty()) reject("stop_sequences", "stop_sequences holds \"\": expected at least one character");
    job.params.stop.push_back(std::move(stop));
  }
  if (job.params.stop.size() > kMaxStops)
    reject("stop_sequences", "stop_sequences holds ", job.params.stop.size(), " strings: at most ",
           kMaxStops);
}

GenerationJob read_messages(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats,
                            bool must_have_max_tokens) {
  const Fields fields(body);
  GenerationJob job;
  read_request(fields, job);
  read_sampling(fields, defaults, job);
  read_limits(fields, must_have_max_tokens, job);
  read_other_fields(fields, job);
  Json variables = Json::object();
  if (const Json* own = fields.find("chat_template_kwargs")) {
    const Fields checked(*own, "chat_template_kwargs.");
    variables = *own;
  }
  ThinkingRequest thinking;
  read_output(fields, thinking, job);
  Conversation conversation = read_conversation(fields);
  MessageTools tools = read_message_tools(fields);
  if (!tools.for_template.empty()) variables["tools"] = std::move(tools.for_template);
  set_answer_format(std::move(tools.tools), tools.choice, /*separates_reasoning=*/true, formats, job);
  if (job.answer) job.answer->call_id_prefix = "toolu_";
  read_thinking(fields, thinking, job);
  set_thinking(thinking, formats, variables, job);
  job.message.has_cache_control =
      conversation.has_cache_control || tools.has_cache_control || has_cache_control(fields);
  job.continued = std::move(conversation.continued);
  job.images = std::move(conversation.images);
  variables["messages"] = std::move(conversation.messages);
  job.variables = json_text(variables);
  check_num_completions(job);
  reject_unsupported_fields(fields);
  std::ranges::move(fields.unknown(), std::back_inserter(job.ignored));
  return job;
}

std::string message_field(std::string_view param, bool) {
  if (param == "prompt") return "messages";
  if (param == "max_new_tokens") return "max_tokens";
  if (param == "stop") return "stop_sequences";
  return std::string(param);
}

}  // namespace

GenerationJob read_countable(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats) {
  return read_messages(body, defaults, formats, /*must_have_max_tokens=*/false);
}

constexpr Endpoint kMessages = {
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .has_own_ids = true,
    .read = [](const Json& body, const SamplingDefaults& defaults,
               const ChatFormats& formats) { return read_messages(body, defaults, formats, true); },
    .client_field_name = message_field,
    .id_header = "request-id",
    .shows_stop_token = false,
    .make_writer = [](const ReplyHead& head, const GenerationJob& job) -> std::unique_ptr<ReplyWriter> {
      return std::make_unique<MessageReplies>(head, job);
    }};

}  // namespace attend::serve
