#include "attend/cli/options/sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "attend/base/error.h"
#include "attend/cli/help/command_help.h"
#include "attend/cli/options/flags.h"

namespace attend::cli {
namespace {

// Reads the value of a field. Returns false for a value of another type.
bool read(const nlohmann::json& value, float& to) {
  if (!value.is_number()) return false;
  to = value.get<float>();
  return true;
}
bool read(const nlohmann::json& value, bool& to) {
  if (!value.is_boolean()) return false;
  to = value.get<bool>();
  return true;
}
bool read(const nlohmann::json& value, int32_t& to) {
  if (!value.is_number_integer() || value < INT32_MIN || value > INT32_MAX) return false;
  to = value.get<int32_t>();
  return true;
}
bool read(const nlohmann::json& value, uint64_t& to) {
  if (!value.is_number_unsigned()) return false;
  to = value.get<uint64_t>();
  return true;
}
bool read(const nlohmann::json& value, std::string& to) {
  if (!value.is_string()) return false;
  to = value.get<std::string>();
  return true;
}
template <class T>
bool read(const nlohmann::json& value, std::optional<T>& to) {
  return read(value, to.emplace());
}
template <class T>
bool read(const nlohmann::json& value, std::vector<T>& to) {
  to.clear();
  if (!value.is_array()) return read(value, to.emplace_back());
  return std::all_of(value.begin(), value.end(),
                     [&](const nlohmann::json& one) { return read(one, to.emplace_back()); });
}
// Reads {"token id": bias}, OpenAI's format.
bool read(const nlohmann::json& value, std::vector<std::pair<int32_t, float>>& to) {
  to.clear();
  if (!value.is_object()) return false;
  for (const auto& item : value.items()) {
    auto& [id, bias] = to.emplace_back();
    id = parse_number<int>("logit_bias", item.key());
    if (!read(item.value(), bias)) return false;
  }
  return true;
}

struct Field {
  std::string_view key, expected;
  bool (*read)(const nlohmann::json& value, SamplingParams& params);
};
template <auto kMember>
bool read_member(const nlohmann::json& value, SamplingParams& params) {
  return read(value, params.*kMember);
}
using P = SamplingParams;
constexpr Field kFields[] = {
    {"max_new_tokens", "an integer", read_member<&P::max_new_tokens>},
    {"max_tokens", "an integer", read_member<&P::max_new_tokens>},
    {"temperature", "a number", read_member<&P::temperature>},
    {"top_k", "an integer", read_member<&P::top_k>},
    {"top_p", "a number", read_member<&P::top_p>},
    {"min_p", "a number", read_member<&P::min_p>},
    {"seed", "an integer from 0", read_member<&P::seed>},
    {"repetition_penalty", "a number", read_member<&P::repetition_penalty>},
    {"frequency_penalty", "a number", read_member<&P::frequency_penalty>},
    {"presence_penalty", "a number", read_member<&P::presence_penalty>},
    {"logit_bias", "an object of token ids and biases", read_member<&P::logit_bias>},
    {"min_tokens", "an integer", read_member<&P::min_tokens>},
    {"min_new_tokens", "an integer", read_member<&P::min_tokens>},
    {"stop", "a string or an array of strings", read_member<&P::stop>},
    {"stop_token_ids", "an array of token ids", read_member<&P::stop_token_ids>},
    {"include_stop_str_in_output", "true or false", read_member<&P::include_stop>},
    {"ignore_eos", "true or false", read_member<&P::ignore_eos>},
    {"skip_special_tokens", "true or false", read_member<&P::skip_special_tokens>},
    {"n", "an integer", read_member<&P::n>},
    {"echo", "true or false", read_member<&P::echo>},
    {"logprobs", "an integer", read_member<&P::logprobs>},
    {"prompt_logprobs", "an integer", read_member<&P::prompt_logprobs>},
};
constexpr std::array<std::string_view, 4> kSamplingKeys = {"top_k", "top_p", "min_p", "seed"};

// Parses "5=-1.5".
std::pair<int32_t, float> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos, "--logit-bias '", text, "': expected TOKEN_ID=BIAS");
  return {parse_number<int>("--logit-bias", std::string_view(text).substr(0, equals)),
          parse_number<float>("--logit-bias", std::string_view(text).substr(equals + 1))};
}

// Adds a name and its value, unless the value has no effect.
template <class T>
void add_setting(std::vector<std::string>& words, std::string_view name, T value, T nothing, bool from_file) {
  if (value != nothing) words.push_back(fmt::format("{} {}{}", name, value, from_file ? "*" : ""));
}

// `chosen`: the temperature was not set by the user or a file.
std::string describe(const SamplingParams& params, const std::set<std::string>& file_keys, bool chosen) {
  const auto from_file = [&](const char* key) { return file_keys.contains(key); };
  std::vector<std::string> words;
  if (params.temperature == 0.0f) {
    words.emplace_back("greedy");
  } else {
    words.push_back(fmt::format("temperature {}{}", params.temperature,
                                from_file("temperature") ? "*"
                                : chosen                 ? " (default)"
                                                         : ""));
    add_setting(words, "top_k", params.top_k, 0, from_file("top_k"));
    add_setting(words, "top_p", params.top_p, 1.0f, from_file("top_p"));
    add_setting(words, "min_p", params.min_p, 0.0f, from_file("min_p"));
  }
  add_setting(words, "repetition_penalty", params.repetition_penalty, 1.0f, from_file("repetition_penalty"));
  std::string text = fmt::format("sampling: {}", fmt::join(words, ", "));
  return text.find('*') == std::string::npos ? text : text + " (*: from generation_config.json)";
}

constexpr Range<float> kPenalty{.lowest = -2, .highest = 2};

// As in llama.cpp, -1 means up to the end of the context.
void add_max_new_tokens(CLI::App& app, int& max_new_tokens) {
  app.add_option_function<std::string>(
         "--max-new-tokens,--max-tokens,--predict,--n-predict,-n",
         [&max_new_tokens](const std::string& text) {
           constexpr Range<int> kRange{.lowest = 1, .or_else = ", or -1 for up to the context length"};
           max_new_tokens = text == "-1" ? kRange.highest : parse_number("--max-new-tokens", text, kRange);
         },
         "maximum tokens per completion; -1: up to the context length")
      ->default_str(std::to_string(max_new_tokens))
      ->type_name("NUMBER");
}

// As in llama.cpp, -1 draws a random seed.
void add_seed(CLI::App& app, SamplingOptions& options) {
  app.add_option_function<std::string>(
         "--seed,-s",
         [&options](const std::string& text) {
           options.draws_seed = text == "-1";
           options.seed =
               options.draws_seed
                   ? std::random_device()()
                   : parse_number("--seed", text, Range<uint64_t>{.or_else = ", or -1 for a random seed"});
         },
         "sampling seed of all prompts; -1: random; default: one per prompt, derived from --random-seed")
      ->type_name("NUMBER");
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  SamplingParams& params = options.params;
  set_group(app, "Sampling");
  add_max_new_tokens(app, params.max_new_tokens);
  add_number(app, "--temperature,--temp", params.temperature,
             "0: greedy; default: from generation_config.json, otherwise 0, or 1 with --top-k, --top-p, "
             "--min-p or --seed",
             Range<float>{.lowest = 0, .highest = 100});
  add_number(
      app, "--top-k", params.top_k,
      "sample from the k most likely tokens; 0: all; default: from generation_config.json, otherwise 0",
      Range<int>{.lowest = 0});
  add_number(
      app, "--top-p", params.top_p,
      "sample from the most likely tokens with this total probability; default: from generation_config.json, "
      "otherwise 1",
      Range<float>{.lowest = 0, .highest = 1, .above_lowest = true})
      ->default_str("");
  add_number(
      app, "--min-p", params.min_p,
      "drop tokens below this fraction of the highest probability; default: from generation_config.json, "
      "otherwise 0",
      Range<float>{.lowest = 0, .highest = 1});
  add_seed(app, options);
  add_number(
      app, "--repetition-penalty", params.repetition_penalty,
      "divides positive and multiplies negative logits of tokens in the prompt or output; default: from "
      "generation_config.json, otherwise 1",
      Range<float>{.lowest = 0, .highest = 2, .above_lowest = true})
      ->default_str("");
  add_number(app, "--frequency-penalty", params.frequency_penalty,
             "subtracted from a token's logit per occurrence in the output; default: 0", kPenalty);
  add_number(app, "--presence-penalty", params.presence_penalty,
             "subtracted from a token's logit if it occurs in the output; default: 0", kPenalty);
  add_repeated(app, "--logit-bias", options.logit_bias,
               "TOKEN_ID=BIAS, added to the token's logit; may be given several times");
  set_group(app, "End of a completion");
  add_number(app, "--min-tokens,--min-new-tokens", params.min_tokens,
             "minimum number of tokens before the completion may end; default: 0", Range<int>{.lowest = 0});
  add_repeated(app, "--stop", params.stop, "stop before this text; may be given several times");
  app.add_flag("--include-stop-str-in-output,--no-stop-trim", params.include_stop,
               "keep the stop string at the end of the text");
  add_numbers(app, "--stop-token-ids", params.stop_token_ids, "0 or above, of the model's vocabulary",
              "stop after one of these token ids, such as 1,2");
  app.add_flag("--ignore-eos", params.ignore_eos, "continue after the end-of-sequence token");
  set_group(app, "Output");
  app.add_flag("!--no-skip-special-tokens", params.skip_special_tokens, "keep special tokens in the text");
  // Not --n, since CLI11 2.4 and later treats it as another -n.
  add_number(app, "--num-completions", params.n, "number of completions per prompt");
  app.add_flag("--echo", params.echo, "include the prompt in the text");
  add_number(app, "--logprobs", options.logprobs,
             "with --json: log probabilities of each token and of this many most likely tokens");
  add_number(app, "--prompt-logprobs", options.prompt_logprobs, "with --json: the same for prompt tokens");
}

SamplingChoice choose_sampling(const CLI::App& app, const SamplingOptions& options,
                               const GenerationConfig& defaults) {
  SamplingChoice choice{.params = options.params, .given = {}, .description = {}};
  SamplingParams& params = choice.params;
  if (given(app, "--seed")) params.seed = options.seed;
  if (given(app, "--logprobs")) params.logprobs = options.logprobs;
  if (given(app, "--prompt-logprobs")) params.prompt_logprobs = options.prompt_logprobs;
  for (const std::string& text : options.logit_bias) params.logit_bias.push_back(parse_bias(text));
  for (const auto& [flag, key] : {std::pair{"--temperature", "temperature"},
                                  {"--top-k", "top_k"},
                                  {"--top-p", "top_p"},
                                  {"--min-p", "min_p"},
                                  {"--seed", "seed"},
                                  {"--repetition-penalty", "repetition_penalty"}})
    if (given(app, flag)) choice.given.insert(key);

  std::set<std::string> file_keys;
  const auto take = [&](const char* key, const auto& value, auto& param) {
    if (!value || choice.given.contains(key)) return;
    param = *value;
    file_keys.insert(key);
  };
  take("repetition_penalty", defaults.repetition_penalty, params.repetition_penalty);
  const bool has_sampling =
      std::any_of(kSamplingKeys.begin(), kSamplingKeys.end(),
                  [&](std::string_view key) { return choice.given.contains(std::string(key)); });
  if (defaults.do_sample || has_sampling || choice.given.contains("temperature")) {
    take("temperature", defaults.temperature, params.temperature);
    if (!choice.given.contains("temperature") && !file_keys.contains("temperature"))
      params.temperature = 1.0f;
    take("top_k", defaults.top_k, params.top_k);
    take("top_p", defaults.top_p, params.top_p);
    take("min_p", defaults.min_p, params.min_p);
  }
  choice.given.insert(file_keys.begin(), file_keys.end());
  check(params);
  choice.description = describe(params, file_keys, !choice.given.contains("temperature"));
  if (options.draws_seed) choice.description += fmt::format(", seed {} (random)", options.seed);
  return choice;
}

bool is_sampling_field(std::string_view key) {
  return std::any_of(std::begin(kFields), std::end(kFields),
                     [&](const Field& field) { return field.key == key; });
}

SamplingParams with_fields(const SamplingChoice& choice, const nlohmann::json& object,
                           const std::string& where) {
  SamplingParams params = choice.params;
  bool has_sampling = false;
  for (const Field& field : kFields) {
    const auto found = object.find(std::string(field.key));
    if (found == object.end() || found->is_null()) continue;
    require(field.read(*found, params), where, ": \"", field.key, "\" is ", found->dump(), ", expected ",
            field.expected);
    has_sampling |= std::find(kSamplingKeys.begin(), kSamplingKeys.end(), field.key) != kSamplingKeys.end();
  }
  if (has_sampling && params.temperature == 0.0f && !choice.given.contains("temperature") &&
      !object.contains("temperature"))
    params.temperature = 1.0f;
  try {
    check(params);
  } catch (const Error& error) {
    fail(error.code(), where, ": ", error.what());
  }
  return params;
}

}  // namespace attend::cli
