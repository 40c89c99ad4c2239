#include "attend/bench/serving/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "attend/base/error.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/json.h"

namespace attend::bench {
namespace {

constexpr int kMaxTokens = 1 << 24;
constexpr size_t kMaxTraceBytes = size_t{1} << 30;
constexpr int64_t kMaxTraceTokens = int64_t{1} << 28;

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end;
}

std::vector<std::string_view> split(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(between)) != text.npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// Arrival times of conversations.
class Arrivals {
 public:
  explicit Arrivals(const TraceOptions& options) {
    require(options.request_rate > 0.0, "--request-rate ", options.request_rate, ": above 0");
    require(options.burstiness > 0.0, "--burstiness ", options.burstiness,
            ": above 0 (1: a Poisson process)");
    if (!std::isinf(options.request_rate))
      gap_.emplace(options.burstiness, 1.0 / (options.request_rate * options.burstiness));
  }
  // The first conversation arrives at the start.
  double next(std::mt19937_64& random) {
    const double time = time_;
    if (gap_) time_ += (*gap_)(random);
    return time;
  }

 private:
  // empty: all arrive at the start
  std::optional<std::gamma_distribution<double>> gap_;
  double time_ = 0.0;
};

std::vector<int32_t> random_tokens(int count, const ModelSpec& spec, std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> id(0, spec.vocab_size - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) do
      token = id(random);
    while (token == spec.image_token_id);
  return tokens;
}

// Rejects unknown fields, since a trace with other field names would be replayed with wrong lengths or times.
void reject_unknown_fields(const JsonNode& object, std::initializer_list<std::string_view> known) {
  if (!object.value().is_object()) object.reject("an object");
  for (const auto& item : object.value().items())
    if (!item.value().is_null() && std::ranges::find(known, item.key()) == known.end()) {
      std::string names;
      for (const std::string_view name : known) names.append(names.empty() ? "" : ", ").append(name);
      object.at(item.key()).reject("no such field; accepted: " + names);
    }
}

Turn read_turn(const JsonNode& line, const TraceOptions& options, const Tokenizer* tokenizer,
               std::mt19937_64& random) {
  Turn turn;
  if (line.has("prompt") == line.has("input_ids")) line.reject("an object with \"prompt\" or \"input_ids\"");
  if (const auto text = line.find("prompt")) {
    if (tokenizer == nullptr) text->unsupported("the model has no tokenizer.json: expected \"input_ids\"");
    turn.tokens = tokenizer->encode(text->string());
    if (turn.tokens.empty()) text->reject("a text with tokens");
  } else {
    const JsonNode ids = line.at("input_ids");
    for (size_t i = 0; i < ids.array_size(); ++i) turn.tokens.push_back(ids.at(i).token_id());
    if (turn.tokens.empty()) ids.reject("token ids, at least one");
  }
  const auto output_tokens = line.find_integer("output_len", 1, kMaxTokens);
  turn.output_tokens = output_tokens ? *output_tokens : options.output.sample(random);
  return turn;
}

}  // namespace

LengthDistribution LengthDistribution::parse(std::string_view flag, std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  LengthDistribution lengths;
  bool good = false;
  if (parts.size() == 1) {
    good = read_number(parts[0], lengths.lowest);
    lengths.highest = lengths.lowest;
  } else if (parts.size() == 2) {
    good = read_number(parts[0], lengths.lowest) && read_number(parts[1], lengths.highest);
  } else if (parts.size() == 4 && parts[0] == "lognormal") {
    lengths.kind = Kind::kLogNormal;
    good = read_number(parts[1], lengths.median) && read_number(parts[2], lengths.sigma) &&
           read_number(parts[3], lengths.highest) && lengths.median >= 1.0 &&
           lengths.median <= lengths.highest && lengths.sigma >= 0.0 && lengths.sigma <= 10.0;
  }
  require(good && lengths.lowest >= 1 && lengths.lowest <= lengths.highest && lengths.highest <= kMaxTokens,
          flag, " '", text, "': expected tokens, 1 to ", kMaxTokens,
          ", such as 512, 100:1024 or lognormal:512:0.8:4096 (median, sigma, maximum)");
  return lengths;
}

int LengthDistribution::sample(std::mt19937_64& random) const {
  if (kind == Kind::kUniform) return std::uniform_int_distribution(lowest, highest)(random);
  const double length = std::lognormal_distribution(std::log(median), sigma)(random);
  return static_cast<int>(std::clamp(std::round(length), 1.0 * lowest, 1.0 * highest));
}

int num_requests(const Trace& trace) {
  size_t count = 0;
  for (const Conversation& conversation : trace) count += conversation.turns.size();
  return static_cast<int>(count);
}

Trace make_trace(const TraceOptions& options, const ModelSpec& spec) {
  require((options.num_shared_prefixes > 0) == (options.shared_prefix_tokens > 0), "--shared-prefixes ",
          options.num_shared_prefixes, ", --shared-prefix-len ", options.shared_prefix_tokens,
          ": expected both or neither");
  const double num_tokens =
      1.0 * options.num_shared_prefixes * options.shared_prefix_tokens +
      1.0 * options.num_conversations *
          (options.shared_prefix_tokens + 1.0 * options.num_turns * options.input.highest);
  require(num_tokens <= static_cast<double>(kMaxTraceTokens), "a trace of up to ", num_tokens,
          " tokens in prompts: at most ", kMaxTraceTokens,
          "; lower --num-prompts, --num-turns, --input-len or --shared-prefixes");
  std::mt19937_64 random(options.seed);
  Arrivals arrivals(options);
  std::vector<std::vector<int32_t>> prefixes(static_cast<size_t>(options.num_shared_prefixes));
  for (auto& prefix : prefixes) prefix = random_tokens(options.shared_prefix_tokens, spec, random);
  Trace trace(static_cast<size_t>(options.num_conversations));
  for (Conversation& conversation : trace) {
    conversation.arrival = arrivals.next(random);
    for (int i = 0; i < options.num_turns; ++i)
      conversation.turns.push_back({.tokens = random_tokens(options.input.sample(random), spec, random),
                                    .output_tokens = options.output.sample(random)});
    if (prefixes.empty()) continue;
    const auto& prefix = prefixes[std::uniform_int_distribution<size_t>(0, prefixes.size() - 1)(random)];
    std::vector<int32_t>& first = conversation.turns.front().tokens;
    first.insert(first.begin(), prefix.begin(), prefix.end());
  }
  return trace;
}

Trace read_trace(const std::filesystem::path& path, const TraceOptions& options, const Tokenizer* tokenizer) {
  std::mt19937_64 random(options.seed);
  Arrivals arrivals(options);
  std::istringstream file(read_file(path, kMaxTraceBytes));
  Trace trace;
  std::string text;
  bool has_arrivals = false;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == text.npos) continue;
    const std::string where = path.string() + ":" + std::to_string(number);
    const JsonNode line(parse_json(text, where), where);
    Conversation conversation;
    reject_unknown_fields(line, {"prompt", "input_ids", "output_len", "arrival", "turns"});
    if (trace.empty()) {
      has_arrivals = line.has("arrival");
      require(!has_arrivals || std::isinf(options.request_rate), "--request-rate ", options.request_rate,
              ": the trace has its own arrivals, from ", where);
    }
    if (line.has("arrival") != has_arrivals)
      line.reject("arrival", has_arrivals ? "seconds, as in the first line" : "none, as in the first line");
    if (const auto arrival = line.find("arrival")) {
      const bool is_number = arrival->value().is_number();
      conversation.arrival = is_number ? arrival->value().get<double>() : -1.0;
      if (!(conversation.arrival >= 0.0 && conversation.arrival <= 1e9)) arrival->reject("seconds, 0 to 1e9");
    } else {
      conversation.arrival = arrivals.next(random);
    }
    if (const auto turns = line.find("turns")) {
      for (const char* key : {"prompt", "input_ids", "output_len"})
        if (const auto beside = line.find(key)) beside->reject("no such field next to \"turns\"");
      for (size_t i = 0; i < turns->array_size(); ++i) {
        reject_unknown_fields(turns->at(i), {"prompt", "input_ids", "output_len"});
        conversation.turns.push_back(read_turn(turns->at(i), options, tokenizer, random));
      }
      if (conversation.turns.empty()) turns->reject("turns, at least one");
    } else {
      conversation.turns.push_back(read_turn(line, options, tokenizer, random));
    }
    trace.push_back(std::move(conversation));
  }
  require(!trace.empty(), path.string(), ": no requests");
  std::stable_sort(trace.begin(), trace.end(),
                   [](const Conversation& a, const Conversation& b) { return a.arrival < b.arrival; });
  return trace;
}

}  // namespace attend::bench
