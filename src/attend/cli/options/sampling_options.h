// What a command's prompts may ask for: flags, fields of a line of JSON, and defaults of the model's makers.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "attend/engine/generation_request.h"
#include "attend/model/config/model_spec.h"

namespace attend::cli {

struct SamplingOptions {
  SamplingParams params;  // of the flags
  uint64_t seed = 0;
  bool draws_seed = false;  // nobody chose it
  int logprobs = 0, prompt_logprobs = 0;
  std::vector<std::string> logit_bias;
};

// Names are those of SGLang and vLLM.
void add_sampling_options(CLI::App& app, SamplingOptions& options);

struct SamplingChoice {
  SamplingParams params;
  // Names of fields of a line of JSON that were given, as flags or by the model's makers.
  std::set<std::string> given;
  std::string said;  // for people: what it is and where it is from
};

// Flags win over generation_config.json, which wins over greedy. Who asks for top-k, top-p, min-p or a seed
// and for no temperature gets 1, as in SGLang. Throws Error(kInvalidArgument) naming the flag.
SamplingChoice choose_sampling(const CLI::App& app, const SamplingOptions& options,
                               const GenerationConfig& defaults);

// Whether a line of JSON may have this field.
bool is_sampling_field(std::string_view key);
// The choice with the fields of such an object, which win over everything; others are not looked at. Throws
// Error(kInvalidArgument) beginning with `where` and naming the field, its value and what was expected.
SamplingParams with_fields(const SamplingChoice& choice, const nlohmann::json& object,
                           const std::string& where);

}  // namespace attend::cli
