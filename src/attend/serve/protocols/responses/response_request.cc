#include "attend/serve/protocols/responses/response_request.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>

#include "attend/serve/protocols/answer_format.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/fields/request_fields.h"
#include "attend/serve/protocols/fields/thinking_fields.h"
#include "attend/serve/protocols/responses/input_items.h"
#include "attend/serve/protocols/responses/response_tools.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::serve {
namespace {

constexpr RefusedField kRefused[] = {
    {"messages", "a field of /v1/chat/completions; expected input"},
    {"response_format", "a field of /v1/chat/completions; expected text.format"},
    {"max_tokens", "a field of /v1/chat/completions; expected max_output_tokens"},
    {"max_completion_tokens", "a field of /v1/chat/completions; expected max_output_tokens"},
    {"reasoning_effort", "a field of /v1/chat/completions; expected reasoning.effort"},
    {"logprobs", "a field of /v1/chat/completions; expected include with \"message.output_text.logprobs\""},
    {"background", "not supported; expected false"},
    {"background_options", "not supported"},
    {"conversation", "not supported; expected previous_response_id"},
    {"context_management", "not supported"},
    {"prompt", "stored prompts are not supported; expected input"},
    {"moderation", "not supported"},
    {"access_programs", "not supported"},
    {"image", "images are not supported"},
    {"continue_final_message", "not supported"},
};

// Returns the value if it is one of these, or nothing for an absent field.
std::optional<std::string> one_of(const Fields& fields, const char* key,
                                  std::initializer_list<std::string_view> values) {
  const auto value = fields.string(key);
  if (!value || std::ranges::find(values, *value) != values.end()) return value;
  std::string all;
  for (const std::string_view known : values)
    all += (all.empty() ? "\"" : ", \"") + std::string(known) + "\"";
  reject(fields.name(key), fields.name(key), " ", excerpt(*value), ": expected one of ", all);
}

// Reads "text": the format of the answer.
Json read_text(const Fields& fields, GenerationJob& job) {
  Json text = Json::object();
  if (const Json* given = fields.find("text")) {
    const Fields inner(*given, "text.");
    text = *given;
    one_of(inner, "verbosity", {"low", "medium", "high"});
    if (const Json* format = inner.find("format")) {
      const Fields named(*format, "text.format.");
      const auto type = named.string("type").value_or("");
      std::optional<Grammar> grammar;
      if (type == "json_object") {
        grammar = json_object_grammar();
      } else if (type == "json_schema") {
        const Json* schema = named.find("schema");
        if (!schema || !schema->is_object())
          reject("text.format.schema", "text.format.schema: expected a JSON schema, an object");
        named.boolean("strict");
        grammar = Grammar{GrammarKind::kJsonSchema, json_text(*schema)};
      } else if (type != "text") {
        reject_unsupported("text.format.type", excerpt(type),
                           " is not supported; expected \"text\", \"json_object\" or \"json_schema\"");
      }
      if (grammar && job.grammar)
        reject("text.format", "text.format: ", job.grammar->param, " already sets the format of the text");
      if (grammar) job.grammar = {*grammar, "text.format"};
    }
  }
  if (!text.contains("format")) text["format"] = {{"type", "text"}};
  return text;
}

// Reads "reasoning".
Json read_reasoning(const Fields& fields, ResponseRequest& request, ThinkingRequest& thinking) {
  Json reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  const Json* given = fields.find("reasoning");
  if (!given) return reasoning;
  const Fields inner(*given, "reasoning.");
  read_reasoning_object(inner, thinking);
  if (thinking.effort) reasoning["effort"] = *thinking.effort;
  for (const char* key : {"summary", "generate_summary"}) {
    const auto summary = one_of(inner, key, {"auto", "concise", "detailed"});
    if (summary == "concise")
      reject_unsupported(inner.name(key),
                         "\"concise\" is not supported: a summary has the whole reasoning; expected "
                         "\"auto\" or \"detailed\"");
    if (!summary) continue;
    request.has_summary = true;
    reasoning["summary"] = *summary;
  }
  one_of(inner, "context", {"auto", "all_turns"});
  one_of(inner, "mode", {"standard"});
  return reasoning;
}

// Reads "include" and "top_logprobs".
void read_include(const Fields& fields, ResponseRequest& request, GenerationJob& job) {
  // The last ones concern items that attend never returns.
  constexpr std::string_view kKnown[] = {"message.output_text.logprobs",
                                         "reasoning.encrypted_content",
                                         "file_search_call.results",
                                         "web_search_call.results",
                                         "web_search_call.action.sources",
                                         "message.input_image.image_url",
                                         "computer_call_output.output.image_url",
                                         "code_interpreter_call.outputs"};
  const auto num_top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  for (const std::string& name : fields.strings("include")) {
    if (std::ranges::find(kKnown, name) == std::end(kKnown))
      reject("include", "include holds ", excerpt(name),
             ": expected \"message.output_text.logprobs\" or \"reasoning.encrypted_content\"");
    if (name == kKnown[0]) job.params.logprobs = static_cast<int>(num_top.value_or(0));
    if (name == kKnown[1]) request.encodes_reasoning = true;
  }
  if (num_top.value_or(0) > 0 && !job.params.logprobs)
    reject("top_logprobs", "top_logprobs: only with include \"message.output_text.logprobs\"");
}

Json read_metadata(const Fields& fields) {
  constexpr size_t kMaxPairs = 16, kMaxKeyChars = 64, kMaxValueChars = 512;
  const Json* metadata = fields.find("metadata");
  if (!metadata) return Json::object();
  if (!metadata->is_object() || metadata->size() > kMaxPairs)
    reject("metadata", "metadata ", excerpt(*metadata), ": expected an object with at most ", kMaxPairs,
           " texts");
  for (const auto& [key, value] : metadata->items()) {
    if (tokenizer::num_chars(key) > kMaxKeyChars)
      reject("metadata", "metadata: the key ", excerpt(key), " has ", tokenizer::num_chars(key),
             " characters; expected at most ", kMaxKeyChars);
    if (!value.is_string() || tokenizer::num_chars(value.get_ref<const std::string&>()) > kMaxValueChars)
      reject("metadata", "metadata: ", excerpt(key), " is ", excerpt(value), "; expected a text of at most ",
             kMaxValueChars, " characters");
  }
  return *metadata;
}

// Returns the field's value as JSON, or `missing`.
Json value_or(const Fields& fields, const char* key, Json missing) {
  const Json* value = fields.find(key);
  return value ? *value : missing;
}

// Items of the conversation that a request answers.
struct ConversationItems {
  Json items = Json::array();
  size_t num_earlier = 0;  // items of the previous response
};

ConversationItems read_conversation(const Fields& fields, ResponseStore* store) {
  const auto previous_id = fields.string("previous_response_id");
  const Json* input = fields.find("input");
  if (!input) reject("input", "input: missing; expected a text or a list of items");
  ConversationItems conversation;
  Json& items = conversation.items;
  const auto stored = [](const ResponseItem& item) {
    return parse_ordered_json(item.json, "an item", kConversationJson);
  };
  if (previous_id && store) {
    const auto previous = store->find(*previous_id);
    if (!previous)
      throw ApiError{404,
                     "previous_response_id " + excerpt(*previous_id) +
                         (store->limits().max_responses == 0
                              ? ": the server stores no responses (--max-stored-responses 0)"
                              : ": not stored; it was never stored, or dropped for newer responses"),
                     "previous_response_id", "previous_response_not_found"};
    for (const auto& item : previous->items) items.push_back(stored(*item));
    conversation.num_earlier = items.size();
  }
  for (Json& item : read_items(*input, "input")) {
    const bool is_reference = store && item["type"].get<std::string>() == kItemReference;
    const auto referenced = is_reference ? store->find_item(item["id"].get<std::string>()) : nullptr;
    items.push_back(referenced ? stored(*referenced) : std::move(item));
  }
  return conversation;
}

}  // namespace

GenerationJob read_response_request(const Json& body, const SamplingDefaults& defaults,
                                    const ChatFormats& formats, ResponseStore* store) {
  const Fields fields(body);
  reject_fields(fields, kRefused);
  GenerationJob job;
  const auto request = std::make_shared<ResponseRequest>();
  fields.integer("n", 1, 1);
  read_request(fields, job);
  read_sampling(fields, defaults, job);
  fields.integer("max_output_tokens", 1, INT32_MAX);  // no response is empty
  read_max_tokens(fields, {"max_output_tokens"}, job);
  read_include(fields, *request, job);
  if (const Json* options = fields.find("stream_options")) {
    if (!job.stream) reject("stream_options", "stream_options: only with stream true");
    if (Fields(*options, "stream_options.").boolean("include_obfuscation").value_or(false))
      reject_unsupported("stream_options.include_obfuscation", "not supported; expected false");
  }

  Json variables = Json::object();
  if (const Json* own = fields.find("chat_template_kwargs")) {
    const Fields checked(*own, "chat_template_kwargs.");
    variables = *own;
  }
  const Json text = read_text(fields, job);
  ThinkingRequest thinking;
  const Json reasoning = read_reasoning(fields, *request, thinking);
  read_thinking_budget(fields, thinking);
  ResponseTools tools = read_response_tools(fields);
  const bool parallel = tools.choice.parallel;
  request->custom_tools = std::move(tools.custom);

  const std::string instructions = fields.string("instructions").value_or("");
  const auto [items, num_earlier] = read_conversation(fields, store);
  variables["messages"] = to_messages(items, num_earlier, instructions, job.images);
  if (!tools.described.empty()) variables["tools"] = tools.described;
  set_answer_format(std::move(tools.tools), tools.choice, /*separates_reasoning=*/true, formats, job);
  if (!job.answer) job.answer.emplace();
  set_thinking(thinking, formats, variables, job);
  job.variables = json_text(variables);
  job.drops_messages = one_of(fields, "truncation", {"auto", "disabled"}) == "auto";

  const bool stores = !store || store->limits().max_responses > 0;
  request->is_stored = fields.boolean("store").value_or(true) && stores;
  request->store = store;
  if (request->is_stored)
    for (const Json& item : items) request->input.push_back({item["id"].get<std::string>(), json_text(item)});
  const auto repeat = [&](const char* key, const Json& value) {
    request->repeated.emplace_back(key, json_text(value));
  };
  repeat("background", false);
  repeat("instructions", value_or(fields, "instructions", nullptr));
  repeat("max_output_tokens", value_or(fields, "max_output_tokens", nullptr));
  fields.integer("max_tool_calls", 1, INT32_MAX);
  repeat("max_tool_calls", value_or(fields, "max_tool_calls", nullptr));
  repeat("metadata", read_metadata(fields));
  repeat("parallel_tool_calls", parallel);
  repeat("previous_response_id", value_or(fields, "previous_response_id", nullptr));
  repeat("reasoning", reasoning);
  repeat("service_tier", "default");
  repeat("temperature", value_or(fields, "temperature", job.params.temperature));
  repeat("text", text);
  repeat("tool_choice", value_or(fields, "tool_choice", "auto"));
  repeat("tools", value_or(fields, "tools", Json::array()));
  repeat("top_logprobs", job.params.logprobs.value_or(0));
  repeat("top_p", value_or(fields, "top_p", job.params.top_p));
  repeat("truncation", value_or(fields, "truncation", "disabled"));
  for (const char* key : {"prompt_cache_key", "safety_identifier", "user"}) {
    const auto value = fields.string(key);
    repeat(key, value ? Json(*value) : Json(nullptr));
  }
  for (const char* key : {"prompt_cache_options", "prompt_cache_retention"}) fields.find(key);
  job.response = request;
  check_num_completions(job);
  reject_unsupported_fields(fields);
  std::ranges::move(fields.unknown(), std::back_inserter(job.ignored));
  return job;
}

}  // namespace attend::serve
