#include "attend/cli/options/sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "attend/base/error.h"
#include "attend/cli/options/flags.h"

namespace attend::cli {
namespace {

using nlohmann::json;

// A value of a field, which refuses what it is not. Returns false for a value of another type.
bool read(const json& value, float& to) {
  if (!value.is_number()) return false;
  to = value.get<float>();
  return true;
}
bool read(const json& value, bool& to) {
  if (!value.is_boolean()) return false;
  to = value.get<bool>();
  return true;
}
bool read(const json& value, int32_t& to) {
  if (!value.is_number_integer() || value < INT32_MIN || value > INT32_MAX) return false;
  to = value.get<int32_t>();
  return true;
}
bool read(const json& value, uint64_t& to) {
  if (!value.is_number_unsigned()) return false;
  to = value.get<uint64_t>();
  return true;
}
bool read(const json& value, std::string& to) {
  if (!value.is_string()) return false;
  to = value.get<std::string>();
  return true;
}
template <class T>
bool read(const json& value, std::optional<T>& to) {
  return read(value, to.emplace());
}
template <class T>
bool read(const json& value, std::vector<T>& to) {
  to.clear();
  if (!value.is_array()) return read(value, to.emplace_back());
  return std::all_of(value.begin(), value.end(),
                     [&](const json& one) { return read(one, to.emplace_back()); });
}
// {"token id": bias}, as OpenAI has it.
bool read(const json& value, std::vector<std::pair<int32_t, float>>& to) {
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
  bool (*read)(const json& value, SamplingParams& params);
};
template <auto kMember>
bool read_member(const json& value, SamplingParams& params) {
  return read(value, params.*kMember);
}
using P = SamplingParams;
constexpr Field kFields[] = {
    {"max_new_tokens", "a whole number", read_member<&P::max_new_tokens>},
    {"max_tokens", "a whole number", read_member<&P::max_new_tokens>},
    {"temperature", "a number", read_member<&P::temperature>},
    {"top_k", "a whole number", read_member<&P::top_k>},
    {"top_p", "a number", read_member<&P::top_p>},
    {"min_p", "a number", read_member<&P::min_p>},
    {"seed", "a whole number from 0", read_member<&P::seed>},
    {"repetition_penalty", "a number", read_member<&P::repetition_penalty>},
    {"frequency_penalty", "a number", read_member<&P::frequency_penalty>},
    {"presence_penalty", "a number", read_member<&P::presence_penalty>},
    {"logit_bias", "an object of token ids and biases", read_member<&P::logit_bias>},
    {"min_tokens", "a whole number", read_member<&P::min_tokens>},
    {"min_new_tokens", "a whole number", read_member<&P::min_tokens>},
    {"stop", "a string or an array of strings", read_member<&P::stop>},
    {"stop_token_ids", "an array of token ids", read_member<&P::stop_token_ids>},
    {"include_stop_str_in_output", "true or false", read_member<&P::include_stop>},
    {"ignore_eos", "true or false", read_member<&P::ignore_eos>},
    {"skip_special_tokens", "true or false", read_member<&P::skip_special_tokens>},
    {"n", "a whole number", read_member<&P::n>},
    {"echo", "true or false", read_member<&P::echo>},
    {"logprobs", "a whole number", read_member<&P::logprobs>},
    {"prompt_logprobs", "a whole number", read_member<&P::prompt_logprobs>},
};
constexpr std::array<std::string_view, 4> kSamplingKeys = {"top_k", "top_p", "min_p", "seed"};

// "5=-1.5"
std::pair<int32_t, float> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos, "--logit-bias '", text, "': expected TOKEN_ID=BIAS");
  return {parse_number<int>("--logit-bias", std::string_view(text).substr(0, equals)),
          parse_number<float>("--logit-bias", std::string_view(text).substr(equals + 1))};
}

// A name and its value, unless that is the one that changes nothing.
template <class T>
void say(std::vector<std::string>& words, std::string_view name, T value, T nothing, bool from_file) {
  if (value != nothing) words.push_back(fmt::format("{} {}{}", name, value, from_file ? "*" : ""));
}

// `chosen`: nobody named the temperature.
std::string describe(const SamplingParams& params, const std::set<std::string>& file_keys, bool chosen) {
  const auto from_file = [&](const char* key) { return file_keys.contains(key); };
  std::vector<std::string> words;
  if (params.temperature == 0.0f) {
    words.emplace_back("greedy");
  } else {
    words.push_back(fmt::format("temperature {}{}", params.temperature,
                                from_file("temperature") ? "*"
                                : chosen                 ? " (none was given)"
                                                         : ""));
    say(words, "top_k", params.top_k, 0, from_file("top_k"));
    say(words, "top_p", params.top_p, 1.0f, from_file("top_p"));
    say(words, "min_p", params.min_p, 0.0f, from_file("min_p"));
  }
  say(words, "repetition_penalty", params.repetition_penalty, 1.0f, from_file("repetition_penalty"));
  std::string said = fmt::format("sampling: {}", fmt::join(words, ", "));
  return said.find('*') == std::string::npos ? said : said + " (*: of generation_config.json)";
}

constexpr Range<float> kPenalty{.lowest = -2, .highest = 2};

// As llama.cpp has it, -1 leaves the end to the context.
void add_max_new_tokens(CLI::App& app, int& max_new_tokens) {
  app.add_option_function<std::string>(
         "--max-new-tokens,--max-tokens,--predict,--n-predict,-n",
         [&max_new_tokens](const std::string& text) {
           constexpr Range<int> kRange{.lowest = 1, .or_else = ", or -1 for as many as the context holds"};
           max_new_tokens = text == "-1" ? kRange.highest : parse_number("--max-new-tokens", text, kRange);
         },
         "maximum tokens per completion; -1: up to the context length")
      ->default_str(std::to_string(max_new_tokens))
      ->type_name("NUMBER");
}

// As llama.cpp has it, -1 draws one.
void add_seed(CLI::App& app, SamplingOptions& options) {
  app.add_option_function<std::string>(
         "--seed,-s",
         [&options](const std::string& text) {
           options.draws_seed = text == "-1";
           options.seed = options.draws_seed
                              ? std::random_device()()
                              : parse_number("--seed", text, Range<uint64_t>{.or_else = ", or -1 for any"});
         },
         "seed of every prompt's sampling, -1: any; default: one for each prompt, of --random-seed")
      ->type_name("NUMBER");
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingOptions& options) {
  SamplingParams& params = options.params;
  add_max_new_tokens(app, params.max_new_tokens);
  add_number(app, "--temperature,--temp", params.temperature,
             "0: the likeliest token; default: generation_config.json's, else 0, or 1 with --top-k, --top-p, "
             "--min-p or --seed",
             Range<float>{.lowest = 0, .highest = 100});
  add_number(app, "--top-k", params.top_k, "sample from the k likeliest; 0, the default: all",
             Range<int>{.lowest = 0});
  add_number(app, "--top-p", params.top_p, "sample from the likeliest that reach this probability together",
             Range<float>{.lowest = 0, .highest = 1, .above_lowest = true});
  add_number(app, "--min-p", params.min_p,
             "drop tokens below this share of the likeliest's probability; default 0",
             Range<float>{.lowest = 0, .highest = 1});
  add_seed(app, options);
  add_number(app, "--repetition-penalty", params.repetition_penalty,
             "divides positive logits of tokens in prompt or output, multiplies negative ones",
             Range<float>{.lowest = 0, .highest = 2, .above_lowest = true});
  add_number(app, "--frequency-penalty", params.frequency_penalty,
             "subtracted from a token's logit per occurrence in the output (default: 0)", kPenalty);
  add_number(app, "--presence-penalty", params.presence_penalty,
             "subtracted from a token's logit if it occurs in the output (default: 0)", kPenalty);
  add_repeated(app, "--logit-bias", options.logit_bias,
               "TOKEN_ID=BIAS, added to the token's logit; may be given several times");
  add_number(app, "--min-tokens,--min-new-tokens", params.min_tokens,
             "tokens before any that ends the completion; default 0", Range<int>{.lowest = 0});
  add_repeated(app, "--stop", params.stop, "stop before this text; may be given several times");
  app.add_flag("--include-stop-str-in-output,--no-stop-trim", params.include_stop,
               "the text ends with the stop string that was found");
  add_numbers(app, "--stop-token-ids", params.stop_token_ids, "0 or above, of the model's vocabulary",
              "stop after one of these token ids, such as 1,2");
  app.add_flag("--ignore-eos", params.ignore_eos, "go on after the end-of-sequence token");
  app.add_flag("!--no-skip-special-tokens", params.skip_special_tokens,
               "special tokens are part of the text");
  // Not --n: CLI11 from 2.4 on takes it for another -n.
  add_number(app, "--num-completions", params.n, "completions of each prompt");
  app.add_flag("--echo", params.echo, "the text begins with the prompt's");
  add_number(app, "--logprobs", options.logprobs,
             "with --json: logarithms of probabilities, of each token and of so many of the likeliest");
  add_number(app, "--prompt-logprobs", options.prompt_logprobs,
             "with --json: the same of the prompt's tokens");
}

SamplingChoice choose_sampling(const CLI::App& app, const SamplingOptions& options,
                               const GenerationConfig& defaults) {
  SamplingChoice choice{.params = options.params, .given = {}, .said = {}};
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
  choice.said = describe(params, file_keys, !choice.given.contains("temperature"));
  if (options.draws_seed) choice.said += fmt::format(", seed {} (drawn)", options.seed);
  return choice;
}

bool is_sampling_field(std::string_view key) {
  return std::any_of(std::begin(kFields), std::end(kFields),
                     [&](const Field& field) { return field.key == key; });
}

SamplingParams with_fields(const SamplingChoice& choice, const json& object, const std::string& where) {
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
