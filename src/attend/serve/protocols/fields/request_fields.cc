#include "attend/serve/protocols/fields/request_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/json.h"
#include "attend/model/config/model_spec.h"
#include "attend/serve/protocols/reply_writer.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::serve {
namespace {

constexpr size_t kMaxSaltChars = 200;                 // the prefix cache stores salts with their pages
constexpr size_t kMaxCompletions = 4096;              // per request, over all its prompts
constexpr size_t kMaxParamBytes = size_t{256} << 20;  // per request, over all its completions

void read_edits(const Fields& fields, const SamplingDefaults& defaults, SamplingParams& params) {
  const auto number = [&](const char* key, double missing, double lowest, double highest) {
    const double value = fields.number(key).value_or(missing);
    if (value < lowest || value > highest)
      reject(fields.name(key), fields.name(key), " ", value, ": expected ", lowest, " to ", highest);
    return static_cast<float>(value);
  };
  params.repetition_penalty = defaults.repetition_penalty;
  for (const char* key : {"repeat_penalty", "repetition_penalty"}) {
    const auto value = fields.number(key);
    if (!value) continue;
    if (!(*value > 0.0 && *value <= 2.0))
      reject(fields.name(key), fields.name(key), " ", *value, ": expected above 0, at most 2 (1: none)");
    params.repetition_penalty = static_cast<float>(*value);
  }
  params.frequency_penalty = number("frequency_penalty", 0.0, -2.0, 2.0);
  params.presence_penalty = number("presence_penalty", 0.0, -2.0, 2.0);
  const bool penalizes = params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f ||
                         params.presence_penalty != 0.0f;
  if (const auto last = fields.integer("repeat_last_n", -1, INT32_MAX); last && *last != -1 && penalizes)
    reject_unsupported(fields.name("repeat_last_n"),
                       "not supported: penalties count all tokens of the answer, the repetition penalty also "
                       "those of the prompt; expected -1, or no penalty");
  for (const char* key : {"min_tokens", "min_new_tokens"})
    if (const auto value = fields.integer(key, 0, INT32_MAX)) params.min_tokens = static_cast<int>(*value);
  const Json* bias = fields.find("logit_bias");
  if (!bias) return;
  if (!bias->is_object())
    reject(fields.name("logit_bias"), fields.name("logit_bias"), " ", excerpt(*bias), ": expected an object");
  for (const auto& item : bias->items()) {
    int32_t id = -1;
    const char* const end = item.key().data() + item.key().size();
    const auto [rest, error] = std::from_chars(item.key().data(), end, id);
    if (error != std::errc() || rest != end || id < 0)
      reject(fields.name("logit_bias"), fields.name("logit_bias"), ": ", excerpt(item.key()),
             " is not a token id");
    // Iterates instead of looking up keys: the object may have an entry per vocabulary token, and each lookup
    // is linear.
    const Json& given = item.value();
    const double value = given.is_null() ? 0.0 : given.is_number() ? given.get<double>() : NAN;
    if (!(value >= -100.0 && value <= 100.0))
      reject(fields.name("logit_bias"), fields.name("logit_bias"), " of ", id, " is ", excerpt(given),
             ": expected -100 to 100");
    params.logit_bias.emplace_back(id, static_cast<float>(value));
  }
}

// Estimates the bytes that one completion stores for its parameters. A bias also has an entry in a table, and
// a stop string is also stored by the matcher.
size_t param_bytes(const SamplingParams& params) {
  constexpr size_t kBytesPerBias = 96;
  size_t bytes = params.logit_bias.size() * kBytesPerBias + params.stop_token_ids.size() * sizeof(int32_t);
  for (const std::string& stop : params.stop) bytes += 2 * stop.size();
  return bytes;
}

}  // namespace

void read_sampling(const Fields& fields, const SamplingDefaults& defaults, GenerationJob& job) {
  SamplingParams& params = job.params;
  params.temperature = static_cast<float>(fields.number("temperature").value_or(defaults.temperature));
  params.top_p = static_cast<float>(fields.number("top_p").value_or(defaults.top_p));
  params.min_p = static_cast<float>(fields.number("min_p").value_or(defaults.min_p));
  // SGLang and vLLM write -1 for "all".
  const auto top_k = fields.integer("top_k", -1, INT32_MAX);
  params.top_k = static_cast<int32_t>(std::max<int64_t>(top_k.value_or(defaults.top_k), 0));
  for (const char* key : {"sampling_seed", "seed"})  // SGLang's name, OpenAI's
    if (const auto seed = fields.integer(key, INT64_MIN, INT64_MAX))
      params.seed = static_cast<uint64_t>(*seed);
  params.stop = fields.strings("stop");
  if (params.stop.size() > kMaxStops)
    reject(fields.name("stop"), fields.name("stop"), " holds ", params.stop.size(), " strings: at most ",
           kMaxStops);
  // Removes duplicates, since all stop tokens are compared with each token.
  params.stop_token_ids = fields.token_ids("stop_token_ids");
  std::sort(params.stop_token_ids.begin(), params.stop_token_ids.end());
  params.stop_token_ids.erase(std::unique(params.stop_token_ids.begin(), params.stop_token_ids.end()),
                              params.stop_token_ids.end());
  params.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  params.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  params.include_stop = fields.boolean("include_stop_str_in_output").value_or(false) ||
                        fields.boolean("no_stop_trim").value_or(false);
  job.grammar = read_grammar(fields);
  read_edits(fields, defaults, params);
  const auto check_range = [&](const char* key, double value, double lowest, double highest) {
    if (value < lowest || value > highest)
      reject(fields.name(key), fields.name(key), " ", value, ": expected ", lowest, " to ", highest);
  };
  check_range("temperature", params.temperature, 0.0, 100.0);
  check_range("min_p", params.min_p, 0.0, 1.0);
  check_range("top_p", params.top_p, 0.0, 1.0);
  // 0 keeps the most likely token, as the smallest positive number does.
  if (params.top_p == 0.0f) params.top_p = std::numeric_limits<float>::min();
}

void read_max_tokens(const Fields& fields, std::initializer_list<const char*> keys, GenerationJob& job) {
  bool is_given = false;
  const auto read = [&](const char* key) {
    const auto value = fields.integer(key, -1, INT32_MAX);
    if (!value || is_given) return;
    is_given = true;
    job.has_max_tokens = *value >= 0;
    job.params.max_new_tokens = job.has_max_tokens ? static_cast<int>(*value) : INT32_MAX;
  };
  for (const char* key : keys) read(key);
  for (const char* key : {"max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict"}) read(key);
}

std::optional<int> read_truncation(const Fields& fields) {
  constexpr const char* kKey = "truncate_prompt_tokens";
  const auto value = fields.integer(kKey, -1, INT32_MAX);
  if (!value) return std::nullopt;
  if (*value == 0)
    reject(fields.name(kKey), fields.name(kKey), " 0: expected at least 1, or -1 for the context");
  return static_cast<int>(*value);
}

void read_request(const Fields& fields, GenerationJob& job) {
  job.model = fields.string("model").value_or("");
  for (const char* key : {"request_id", "rid"})  // vLLM's name, SGLang's
    if (auto id = fields.id(key)) job.rid = std::move(*id);
  job.adapter = fields.string("lora_path").value_or("");
  job.stream = fields.boolean("stream").value_or(false);
  job.priority = static_cast<int>(fields.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  job.truncate_prompt = read_truncation(fields);
  // The joined key includes the size of the salt, so that different splits give different keys.
  const auto read_salt = [&](const char* field) {
    std::string text = fields.string(field).value_or("");
    if (const size_t size = tokenizer::num_chars(text); size > kMaxSaltChars)
      reject(fields.name(field), fields.name(field), " of ", size, " characters: expected at most ",
             kMaxSaltChars);
    return text;
  };
  const std::string salt = read_salt("cache_salt"), key = read_salt("extra_key");
  if (!salt.empty() || !key.empty()) job.cache_salt = std::to_string(salt.size()) + ":" + salt + key;
}

void check_num_completions(const GenerationJob& job) {
  // A chat becomes one prompt later.
  const size_t num = std::max<size_t>(job.prompts.size(), 1) * static_cast<size_t>(job.params.n);
  if (num > kMaxCompletions)
    reject("n", "n ", job.params.n, " of ", job.prompts.size(), " prompts: expected at most ",
           kMaxCompletions, " completions together");
  const size_t num_tokens = job.has_max_tokens ? static_cast<size_t>(job.params.max_new_tokens) : 0;
  if (job.params.logprobs)
    if (const size_t per_token = 1 + static_cast<size_t>(std::max(*job.params.logprobs, 0));
        num * num_tokens > kMaxLogprobs / per_token)
      reject("logprobs", "logprobs: ", num, " completions of ", num_tokens, " tokens with ", per_token,
             " logprobs each: expected at most ", kMaxLogprobs, " together");
  if (const size_t bytes = param_bytes(job.params); num * bytes > kMaxParamBytes)
    reject("n", num, " completions with stop, stop_token_ids and logit_bias of ", bytes,
           " bytes each: expected at most ", kMaxParamBytes, " together");
}

SamplingDefaults SamplingDefaults::read(const std::filesystem::path& model_path) {
  SamplingDefaults defaults;
  const auto checkpoint = open_checkpoint(model_path);
  if (!checkpoint->find(CheckpointDocument::kGenerationConfig)) return defaults;
  const GenerationConfig config = read_generation_config(*checkpoint);
  defaults.temperature = config.do_sample ? config.temperature.value_or(1.0f) : 0.0f;
  defaults.top_p = config.top_p.value_or(1.0f);
  defaults.min_p = config.min_p.value_or(0.0f);
  defaults.top_k = config.top_k.value_or(0);
  defaults.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  return defaults;
}

}  // namespace attend::serve
