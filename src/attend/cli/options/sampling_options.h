// Sampling parameters of a command's prompts: flags, fields of JSON lines, and the model's defaults.
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
  SamplingParams params;  // values of the flags
  uint64_t seed = 0;
  bool draws_seed = false;  // the seed was not set and is drawn at random
  int logprobs = 0, prompt_logprobs = 0;
  std::vector<std::string> logit_bias;
};

// Names are those of SGLang and vLLM.
void add_sampling_options(CLI::App& app, SamplingOptions& options);

struct SamplingChoice {
  SamplingParams params;
  // Names (of JSON fields) of the parameters that flags or the model's defaults set.
  std::set<std::string> given;
  std::string description;  // readable description of the values and their sources
};

// Flags override generation_config.json, which overrides greedy. If top-k, top-p, min-p or a seed is set
// without a temperature, the temperature is 1, as in SGLang. Throws Error(kInvalidArgument) that names the
// flag.
SamplingChoice choose_sampling(const CLI::App& app, const SamplingOptions& options,
                               const GenerationConfig& defaults);

// Returns true if a JSON line may have this field.
bool is_sampling_field(std::string_view key);
// Returns the choice updated by the fields of a JSON object, which override everything else. Other fields are
// ignored. Throws Error(kInvalidArgument) with prefix `where` that names the field, its value and the
// accepted values.
SamplingParams with_fields(const SamplingChoice& choice, const nlohmann::json& object,
                           const std::string& where);

}  // namespace attend::cli
