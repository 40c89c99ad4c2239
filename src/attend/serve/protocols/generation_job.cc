#include "attend/serve/protocols/generation_job.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "attend/checkpoint/input_file.h"
#include "attend/model/config/generation_config.h"

namespace attend::serve {
namespace {

constexpr int kMaxChoices = 128;
constexpr int kMaxTopLogprobs = 20;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxPrompts = 1024;
constexpr size_t kMaxCompletions = 4096;              // of a request, its prompts together
constexpr size_t kMaxParamBytes = size_t{256} << 20;  // that these hold of its parameters

// Fields that would change the answer and that attend does not have.
struct MissingField {
  const char* key;
  const char* why;
};
constexpr MissingField kMissing[] = {
    {"stop_regex", "not supported; use stop"},
    {"bad_words", "not supported; use logit_bias"},
    {"allowed_token_ids", "not supported; use logit_bias"},
    {"custom_logit_processor", "not supported"},
    {"logits_processors", "not supported"},
    {"use_beam_search", "not supported"},
    {"length_penalty", "not supported"},
    {"truncate_prompt_tokens", "not supported"},
    {"prompt_logprobs", "not supported here; use /generate with logprob_start_len, or echo with logprobs"},
    {"token_ids_logprob", "not supported"},
    {"return_hidden_states", "not supported"},
    {"lora_path", "adapters are not supported"},
    {"input_embeds", "not supported"},
    {"image_data", "images are not supported"},
    {"video_data", "videos are not supported"},
    {"audio_data", "sound is not supported"},
    {"audio", "sound is not supported"},
    {"session_params", "not supported"},
    {"web_search_options", "not supported"},
    {"functions", "calls of tools are not supported"},
};
// Known, and of no effect on the answer. SGLang's router sends separate_reasoning true, which asks for what a
// server without a parser of reasoning does not have in SGLang either.
constexpr const char* kWithoutEffect[] = {"user",
                                          "store",
                                          "metadata",
                                          "service_tier",
                                          "prediction",
                                          "stream_reasoning",
                                          "separate_reasoning",
                                          "verbosity",
                                          "safety_identifier",
                                          "prompt_cache_key",
                                          "spaces_between_special_tokens",
                                          "parallel_tool_calls",
                                          "detokenize",
                                          "add_special_tokens"};

// What says the same as nothing: false, 0, "", [], {}.
bool is_neutral(const Json& value) {
  if (value.is_boolean()) return value == false;
  if (value.is_number()) return value == 0;
  return value.is_string() ? value == "" : value.empty();
}

void refuse_what_is_missing(const Fields& fields) {
  for (const auto& [key, why] : kMissing)
    if (const Json* value = fields.find(key); value && !is_neutral(*value))
      refuse_unsupported(fields.name(key), why);
  for (const char* key : kWithoutEffect) fields.find(key);
  if (const Json* modalities = fields.find("modalities"); modalities && *modalities != Json({"text"}))
    refuse_unsupported("modalities", "only [\"text\"] is supported");
}

void read_edits(const Fields& fields, const SamplingDefaults& defaults, SamplingParams& params) {
  const auto number = [&](const char* key, double missing, double lowest, double highest) {
    const double value = fields.number(key).value_or(missing);
    if (value < lowest || value > highest)
      refuse(fields.name(key), fields.name(key), " ", value, ": expected ", lowest, " to ", highest);
    return static_cast<float>(value);
  };
  params.repetition_penalty = number("repetition_penalty", defaults.repetition_penalty, 1e-3, 1e3);
  params.frequency_penalty = number("frequency_penalty", 0.0, -2.0, 2.0);
  params.presence_penalty = number("presence_penalty", 0.0, -2.0, 2.0);
  for (const char* key : {"min_tokens", "min_new_tokens"})
    if (const auto value = fields.integer(key, 0, INT32_MAX)) params.min_tokens = static_cast<int>(*value);
  const Json* bias = fields.find("logit_bias");
  if (!bias) return;
  if (!bias->is_object())
    refuse(fields.name("logit_bias"), fields.name("logit_bias"), " ", excerpt(*bias), ": expected an object");
  for (const auto& item : bias->items()) {
    int32_t id = -1;
    const char* const end = item.key().data() + item.key().size();
    const auto [rest, error] = std::from_chars(item.key().data(), end, id);
    if (error != std::errc() || rest != end || id < 0)
      refuse(fields.name("logit_bias"), fields.name("logit_bias"), ": ", excerpt(item.key()),
             " is no token id");
    // Not by its key: there may be as many as the vocabulary has tokens, and finding one reads them all.
    const Json& given = item.value();
    const double value = given.is_null() ? 0.0 : given.is_number() ? given.get<double>() : NAN;
    if (!(value >= -100.0 && value <= 100.0))
      refuse(fields.name("logit_bias"), fields.name("logit_bias"), " of ", id, " is ", excerpt(given),
             ": expected -100 to 100");
    params.logit_bias.emplace_back(id, static_cast<float>(value));
  }
}

void read_sampling(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job) {
  SamplingParams& params = job.params;
  params.temperature = static_cast<float>(fields.number("temperature").value_or(defaults.temperature));
  params.top_p = static_cast<float>(fields.number("top_p").value_or(defaults.top_p));
  params.min_p = static_cast<float>(fields.number("min_p").value_or(defaults.min_p));
  // SGLang and vLLM write "all" as -1.
  const auto top_k = fields.integer("top_k", -1, INT32_MAX);
  params.top_k = static_cast<int32_t>(std::max<int64_t>(top_k.value_or(defaults.top_k), 0));
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX))
    params.seed = static_cast<uint64_t>(*seed);
  params.stop = fields.strings("stop");
  if (params.stop.size() > kMaxStops)
    refuse(fields.name("stop"), fields.name("stop"), " holds ", params.stop.size(), " strings: at most ",
           kMaxStops);
  // Each once: all of them are looked at for each token.
  params.stop_token_ids = fields.token_ids("stop_token_ids");
  std::sort(params.stop_token_ids.begin(), params.stop_token_ids.end());
  params.stop_token_ids.erase(std::unique(params.stop_token_ids.begin(), params.stop_token_ids.end()),
                              params.stop_token_ids.end());
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  params.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false) ||
                        fields.boolean("no_stop_trim").value_or(false);
  refuse_what_is_missing(fields);
  job.grammar = read_grammar(fields);
  read_edits(fields, defaults, params);
  const auto check_range = [&](const char* key, double value, double lowest, double highest) {
    if (value < lowest || value > highest)
      refuse(fields.name(key), fields.name(key), " ", value, ": expected ", lowest, " to ", highest);
  };
  check_range("temperature", params.temperature, 0.0, 100.0);
  check_range("min_p", params.min_p, 0.0, 1.0);
  check_range("top_p", params.top_p, 0.0, 1.0);
  if (params.top_p == 0.0f)
    refuse(fields.name("top_p"), fields.name("top_p"), " 0: expected above 0, at most 1");
}

void read_max_tokens(const Fields& fields, std::initializer_list<const char*> keys, GenerationJob& job) {
  for (const char* key : keys) {
    const auto value = fields.integer(key, 1, INT32_MAX);
    if (!value || job.has_max_tokens) continue;
    job.params.max_new_tokens = static_cast<int>(*value);
    job.has_max_tokens = true;
  }
}

// What all doors have, beside sampling.
void read_request(const Fields& fields, GenerationJob& job) {
  job.model = fields.string("model").value_or("");
  job.rid = fields.id("rid").value_or("");
  job.stream = fields.boolean("stream").value_or(false);
  job.priority = static_cast<int>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  // Which of the two holds what makes a difference.
  const std::string salt = fields.string("cache_salt").value_or("");
  const std::string key = fields.string("extra_key").value_or("");
  if (!salt.empty() || !key.empty()) job.cache_salt = std::to_string(salt.size()) + ":" + salt + key;
}

// What both of OpenAI's doors have.
void read_common(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job) {
  read_request(fields, job);
  job.params.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  if (const Json* options = fields.find("stream_options")) {
    if (!job.stream) refuse("stream_options", "stream_options: only with stream true");
    const Fields inner(*options, "stream_options.");
    job.include_usage = inner.boolean("include_usage").value_or(false);
    job.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  }
  read_sampling(fields, defaults, job);
}

// What a completion holds of its parameters, which each has for itself. About: a token's bias has a place in
// a table besides, a stop string one where it is looked for.
size_t param_bytes(const SamplingParams& params) {
  constexpr size_t kBytesOfBias = 96;
  size_t bytes = params.logit_bias.size() * kBytesOfBias + params.stop_token_ids.size() * sizeof(int32_t);
  for (const std::string& stop : params.stop) bytes += 2 * stop.size();
  return bytes;
}

void check_num_completions(const GenerationJob& job) {
  // A conversation becomes a prompt later.
  const size_t num = std::max<size_t>(job.prompts.size(), 1) * static_cast<size_t>(job.params.n);
  if (num > kMaxCompletions)
    refuse("n", "n ", job.params.n, " of ", job.prompts.size(), " prompts: expected at most ",
           kMaxCompletions, " completions together");
  if (const size_t bytes = param_bytes(job.params); num * bytes > kMaxParamBytes)
    refuse("n", num, " completions with stop, stop_token_ids and logit_bias of ", bytes,
           " bytes each: expected at most ", kMaxParamBytes, " together");
}

void check_message(const Json& message, const std::string& where) {
  const Fields fields(message, where + ".");
  if (!fields.string("role")) refuse(where + ".role", where, ".role: missing; expected a string");
  const Json* content = fields.find("content");
  if (!content || content->is_string()) {
    if (!content && *fields.string("role") != "assistant")
      refuse(where + ".content", where, ".content: missing");
    return;
  }
  if (!content->is_array())
    refuse(where + ".content", where, ".content ", excerpt(*content),
           ": expected a string or a list of parts");
  for (const Json& part : *content) {
    const Fields inner(part, where + ".content.");
    if (const std::string type = inner.string("type").value_or(""); type != "text")
      refuse_unsupported(where + ".content", "parts of type \"", type,
                         "\" are not supported; expected \"text\"");
    if (!inner.string("text")) refuse(where + ".content", where, ".content: a part without \"text\"");
  }
}

// What the answer is read as, and what it has to be where calls are asked for.
void read_answer_format(const Fields& fields, const ChatFormats& formats, GenerationJob& job) {
  AnswerFormat format;
  format.reasoning = formats.reasoning && fields.boolean("separate_reasoning").value_or(true);
  std::vector<Tool> tools = read_tools(fields);
  const ToolChoice choice = read_tool_choice(fields, tools);
  if (choice.kind != ToolChoice::Kind::kNone) {
    const bool has_to_call = choice.kind != ToolChoice::Kind::kAuto;
    if (!formats.tools && !has_to_call)
      refuse_unsupported(
          "tools",
          "nothing is known of how the model writes calls; expected a server with --tool-call-parser, "
          "or tool_choice \"none\" or \"required\"");
    // Whatever the model is used to, a grammar makes it write JSON.
    format.tool_format = formats.tools.value_or(ToolFormat::kLlama3);
    if (has_to_call && job.grammar)
      refuse("tool_choice", "tool_choice: ", job.grammar->param, " says already what the text is to be");
    if (has_to_call) job.grammar = {tool_grammar(format.tool_format, tools, choice), "tools"};
    format.tools = std::move(tools);
  }
  if (format.reasoning || !format.tools.empty()) job.answer = std::move(format);
}

// What the template sees.
std::string template_variables(const Fields& fields, GenerationJob& job) {
  Json variables = Json::object();
  if (const Json* own = fields.find("chat_template_kwargs")) {
    const Fields checked(*own, "chat_template_kwargs.");
    variables = *own;
  }
  variables["messages"] = *fields.find("messages");
  for (const char* key : {"tools", "documents", "reasoning_effort"})
    if (const Json* value = fields.find(key)) variables[key] = *value;
  const std::optional<bool> generation_prompt = fields.boolean("add_generation_prompt");
  job.add_generation_prompt = generation_prompt.value_or(true);
  if (fields.boolean("continue_final_message").value_or(false)) {
    Json& messages = variables["messages"];
    if (generation_prompt.value_or(false))
      refuse("continue_final_message", "continue_final_message: not with add_generation_prompt");
    if (messages.back()["role"] != "assistant" || !messages.back().value("content", Json()).is_string())
      refuse("continue_final_message",
             "continue_final_message: expected a last message of the assistant whose content is a string");
    job.continued = messages.back()["content"].get<std::string>();
    messages.erase(messages.size() - 1);
    job.add_generation_prompt = true;
  }
  return variables.dump();
}

void read_native_logprobs(const Fields& fields, GenerationJob& job) {
  const auto start = fields.integer("logprob_start_len", -1, INT32_MAX);
  const auto num_top = fields.integer("top_logprobs_num", 0, kMaxTopLogprobs);
  job.logprob_text = fields.boolean("return_text_in_logprobs").value_or(false);
  if (!fields.boolean("return_logprob").value_or(false)) {
    if (num_top.value_or(0) > 0)
      refuse("top_logprobs_num", "top_logprobs_num: only with return_logprob true");
    return;
  }
  job.params.logprobs = static_cast<int>(num_top.value_or(0));
  if (start.value_or(-1) < 0) return;
  job.logprob_start = static_cast<int>(*start);
  job.params.prompt_logprobs = job.params.logprobs;
}

}  // namespace

SamplingDefaults SamplingDefaults::read(const std::filesystem::path& model_path) {
  SamplingDefaults defaults;
  if (!file_exists(model_path / "generation_config.json")) return defaults;
  const GenerationConfig config = read_generation_config(model_path);
  defaults.temperature = config.do_sample ? config.temperature.value_or(1.0f) : 0.0f;
  defaults.top_p = config.top_p.value_or(1.0f);
  defaults.min_p = config.min_p.value_or(0.0f);
  defaults.top_k = config.top_k.value_or(0);
  defaults.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  return defaults;
}

GenerationJob read_chat(const Json& body, const SamplingDefaults& defaults, const ChatFormats& formats) {
  const Fields fields(body);
  GenerationJob job;
  job.door = Door::kChat;
  read_common(fields, defaults, job);
  read_max_tokens(fields, {"max_completion_tokens", "max_tokens"}, job);
  const auto num_top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (fields.boolean("logprobs").value_or(false))
    job.params.logprobs = static_cast<int>(num_top.value_or(0));
  else if (num_top.value_or(0) > 0)
    refuse("top_logprobs", "top_logprobs: only with logprobs true");
  const Json* messages = fields.find("messages");
  if (!messages || !messages->is_array() || messages->empty())
    refuse("messages", "messages: expected a list of at least one message");
  for (size_t i = 0; i < messages->size(); ++i)
    check_message((*messages)[i], "messages[" + std::to_string(i) + "]");
  read_answer_format(fields, formats, job);
  check_num_completions(job);
  job.variables = template_variables(fields, job);
  job.ignored = fields.unread();
  return job;
}

GenerationJob read_completion(const Json& body, const SamplingDefaults& defaults) {
  const Fields fields(body);
  GenerationJob job;
  job.door = Door::kCompletions;
  job.params.max_new_tokens = 16;
  read_common(fields, defaults, job);
  read_max_tokens(fields, {"max_tokens", "max_completion_tokens"}, job);
  job.has_max_tokens = true;
  job.echo = fields.boolean("echo").value_or(false);
  if (const Json* logprobs = fields.find("logprobs"); logprobs && *logprobs != false) {
    job.params.logprobs = static_cast<int>(*fields.integer("logprobs", 0, kMaxTopLogprobs));
    if (job.echo) job.params.prompt_logprobs = job.params.logprobs;
  }
  if (const auto best_of = fields.integer("best_of", 1, kMaxChoices);
      best_of && *best_of != 1 && *best_of != job.params.n)
    refuse("best_of", "best_of ", *best_of, ": expected 1, or n");
  if (fields.string("suffix").value_or("") != "")
    refuse_unsupported("suffix", "not supported; expected none");
  const Json* prompt = fields.find("prompt");
  if (!prompt) refuse("prompt", "prompt: missing; expected a string, token ids, or a list of these");
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
    refuse("prompt", "prompt ", excerpt(*prompt), ": expected a string, token ids, or a list of 1 to ",
           kMaxPrompts, " of these");
  check_num_completions(job);
  job.ignored = fields.unread();
  return job;
}

GenerationJob read_generate(const Json& body, const SamplingDefaults& defaults) {
  const Fields fields(body);
  GenerationJob job;
  job.door = Door::kGenerate;
  const Json none = Json::object();
  const Json* given = fields.find("sampling_params");
  if (given && given->is_array())
    refuse_unsupported("sampling_params", "a list is not supported; expected an object");
  const Fields sampling(given ? *given : none, "sampling_params.");
  read_sampling(sampling, defaults, job);
  job.params.n = static_cast<int>(sampling.integer("n", 1, kMaxChoices).value_or(1));
  read_max_tokens(sampling, {"max_new_tokens"}, job);
  job.has_max_tokens = true;
  read_request(fields, job);
  refuse_what_is_missing(fields);
  read_native_logprobs(fields, job);
  const Json* text = fields.find("text");
  const Json* ids = fields.find("input_ids");
  if (!text == !ids) refuse(text ? "input_ids" : "text", "expected one of text and input_ids");
  if (text) {
    job.is_batch = text->is_array();
    for (std::string& prompt : fields.strings("text")) job.prompts.emplace_back(std::move(prompt));
  } else {
    job.is_batch = ids->is_array() && !ids->empty() && ids->front().is_array();
    if (!job.is_batch)
      job.prompts.emplace_back(read_token_ids(*ids, "input_ids"));
    else
      for (const Json& prompt : *ids) job.prompts.emplace_back(read_token_ids(prompt, "input_ids"));
  }
  if (job.prompts.empty() || job.prompts.size() > kMaxPrompts)
    refuse(text ? "text" : "input_ids", text ? "text" : "input_ids", ": expected 1 to ", kMaxPrompts,
           " prompts");
  check_num_completions(job);
  job.ignored = fields.unread();
  for (const std::string& key : sampling.unread()) job.ignored.push_back(sampling.name(key));
  return job;
}

}  // namespace attend::serve
