// Trace: requests with arrival times, random or read from a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string_view>
#include <vector>

#include "attend/model/config/model_spec.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::bench {

// Distribution of the number of tokens of prompts or answers.
struct LengthDistribution {
  enum class Kind : uint8_t { kUniform, kLogNormal };
  Kind kind = Kind::kUniform;
  int lowest = 1, highest = 1;  // bounds of every length; samples are clamped
  double median = 0.0;          // kLogNormal
  double sigma = 0.0;           // kLogNormal: standard deviation of the logarithm

  // Parses "512" (constant), "100:1024" (uniform from 100 to 1,024) or "lognormal:512:0.8:4096" (median,
  // sigma, maximum). Throws Error(kInvalidArgument) that names the flag.
  static LengthDistribution parse(std::string_view flag, std::string_view text);
  int sample(std::mt19937_64& random) const;
};

// A request: the tokens of the user's turn, sent when the previous turn has been answered.
struct Turn {
  std::vector<int32_t> tokens;  // appended to all previous turns
  int output_tokens = 1;
};

struct Conversation {
  double arrival = 0.0;  // of its first turn, in seconds from the start; later turns arrive when the previous
                         // one is answered
  std::vector<Turn> turns;
};
using Trace = std::vector<Conversation>;  // sorted by arrival

int num_requests(const Trace& trace);

struct TraceOptions {
  int num_conversations = 64;
  // Conversations per second; infinity: all at the start. Intervals follow a gamma distribution with shape
  // `burstiness`: 1 is a Poisson process, below 1 is burstier, above 1 more regular.
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1.0;
  LengthDistribution input = {.lowest = 512, .highest = 512};  // per turn, without shared prefixes
  LengthDistribution output = {.lowest = 128, .highest = 128};
  // Each conversation starts with one of these prefixes, chosen at random.
  int num_shared_prefixes = 0;
  int shared_prefix_tokens = 0;
  int num_turns = 1;
  uint64_t seed = 0;
};

// Returns a trace of random tokens of the model. The same options return the same trace. Throws
// Error(kInvalidArgument) that names the flag.
Trace make_trace(const TraceOptions& options, const ModelSpec& spec);

// Reads one JSON object per line: "prompt" or "input_ids", optionally "output_len" (default: options.output)
// and "arrival" in seconds. If the first line has no arrival, arrivals follow options.request_rate, which
// must be infinite otherwise. "turns", an array of such objects, replaces the prompt. Other fields are
// rejected. `tokenizer`: may be null. Throws Error that names file and line.
Trace read_trace(const std::filesystem::path& path, const TraceOptions& options, const Tokenizer* tokenizer);

}  // namespace attend::bench
