// Trace: requests as they come to a server, made at random or read from a file.
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

// How many tokens prompts or answers have.
struct LengthDistribution {
  enum class Kind : uint8_t { kUniform, kLogNormal };
  Kind kind = Kind::kUniform;
  int lowest = 1, highest = 1;  // of any length; a draw outside takes the nearer
  double median = 0.0;          // kLogNormal
  double sigma = 0.0;           // kLogNormal: the standard deviation of the logarithm

  // "512": always; "100:1024": each from 100 to 1,024 equally often; "lognormal:512:0.8:4096": median, sigma,
  // and what is the most. Throws Error(kInvalidArgument) naming the flag.
  static LengthDistribution parse(std::string_view flag, std::string_view text);
  int sample(std::mt19937_64& random) const;
};

// A request, and what the user says next when it is answered.
struct Turn {
  std::vector<int32_t> tokens;  // behind all that was said before
  int output_tokens = 1;
};

struct Conversation {
  double arrival = 0.0;  // of its first turn, seconds from the start; the others come when they are answered
  std::vector<Turn> turns;
};
using Trace = std::vector<Conversation>;  // by arrival

int num_requests(const Trace& trace);

struct TraceOptions {
  int num_conversations = 64;
  // Conversations that come in a second; infinity: all at once. Times between two are gamma distributed: with
  // a burstiness (the shape) of 1 it is a Poisson process, below 1 they come in bursts, above more evenly.
  double request_rate = std::numeric_limits<double>::infinity();
  double burstiness = 1.0;
  LengthDistribution input = {.lowest = 512, .highest = 512};  // of each turn, shared prefixes not counted
  LengthDistribution output = {.lowest = 128, .highest = 128};
  // A conversation begins with one of so many prefixes, chosen at random.
  int num_shared_prefixes = 0;
  int shared_prefix_tokens = 0;
  int num_turns = 1;
  uint64_t seed = 0;
};

// Random tokens of the model's. The same options give the same trace. Throws Error(kInvalidArgument) naming
// the flag.
Trace make_trace(const TraceOptions& options, const ModelSpec& spec);

// A JSON object for each line: "prompt" or "input_ids", perhaps "output_len" (unless it is there:
// options.output) and "arrival" in seconds (unless it is there in the first line: by options.request_rate,
// which must be infinite beside arrivals). Instead of a prompt "turns", an array of such objects. Other
// fields are refused. `tokenizer`: null where there is none. Throws Error naming file and line.
Trace read_trace(const std::filesystem::path& path, const TraceOptions& options, const Tokenizer* tokenizer);

}  // namespace attend::bench
