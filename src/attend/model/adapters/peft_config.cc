#include "attend/model/adapters/peft_config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "attend/base/error.h"
#include "attend/kernels/gemm/low_rank.h"
#include "attend/text/tokenizer/regex/regex.h"

namespace attend {
namespace {

bool is_empty(const JsonNode& config, std::string_view key) {
  const auto value = config.find(key);
  return !value || value->value().empty();
}

// Refuses fields that change the computation and that attend does not implement.
void refuse_variants(const JsonNode& config) {
  if (const auto type = config.find_string("peft_type"); type && *type != "LORA")
    config.at("peft_type").unsupported(excerpt(*type), ": attend applies adapters of type \"LORA\"");
  for (const char* flag : {"use_dora", "lora_bias", "use_qalora"})
    if (config.boolean_or(flag, false))
      config.at(flag).unsupported("true: attend applies plain LoRA adapters");
  if (const auto bias = config.find_string("bias"); bias && *bias != "none")
    config.at("bias").unsupported(excerpt(*bias), ": attend does not change biases; expected \"none\"");
  for (const char* list : {"modules_to_save", "trainable_token_indices", "target_parameters",
                           "layer_replication", "alora_invocation_tokens"})
    if (!is_empty(config, list))
      config.at(list).unsupported(
          excerpt(config.at(list).value()),
          ": attend applies adapters of linear layers in attention, recurrent layers and dense MLPs");
  // These initializations change the base weights, unless the adapter was converted when it was saved.
  if (const auto init = config.find("init_lora_weights"); init && init->value().is_string())
    for (const std::string_view method : {"pissa", "olora", "corda", "loftq", "lora_ga"})
      if (init->string().starts_with(method))
        init->unsupported(
            excerpt(init->string()),
            ": this initialization changes the base weights; convert the adapter to plain LoRA with "
            "PEFT (path_initial_model_for_weight_conversion)");
}

PeftConfig::Targets read_targets(const JsonNode& config) {
  PeftConfig::Targets targets;
  targets.is_complete = is_empty(config, "exclude_modules") && is_empty(config, "layers_to_transform");
  const auto given = config.find("target_modules");
  if (!given) {
    targets.is_complete = false;
    return targets;
  }
  if (given->value().is_string()) {
    if (given->string() == "all-linear")
      targets.all = true;
    else
      targets.pattern = given->string();
    return targets;
  }
  for (size_t i = 0; i < given->array_size(); ++i) targets.names.push_back(given->at(i).string());
  return targets;
}

// Reads {regular expression: value} in the order of the file.
template <class Value, class Read>
std::vector<std::pair<std::string, Value>> read_patterns(const AdapterFolder& folder, const char* key,
                                                         const Read& read) {
  std::vector<std::pair<std::string, Value>> patterns;
  const auto values = folder.config().find(key);
  if (!values || values->object_size() == 0) return patterns;
  for (const auto& [pattern, value] : folder.ordered_config()[key].items())
    patterns.emplace_back(pattern, read(*values, pattern));
  return patterns;
}

bool fits_pattern(const std::string& pattern, const std::string& text, const std::string& where) {
  const tokenizer::Regex regex("\\A(?:" + pattern + ")\\z", where + ": \"" + pattern + "\"");
  tokenizer::RegexScratch scratch;
  std::vector<tokenizer::Span> found;
  regex.find_all(text, scratch, found);
  return !found.empty();
}

template <class Value>
Value value_of(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module,
               const std::string& where, Value otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (fits_pattern("(?:.*\\.)?(?:" + pattern + ")", module, where)) return value;
  return otherwise;
}

}  // namespace

int PeftConfig::rank_of(const std::string& module) const {
  return value_of(ranks, module, where + ": rank_pattern", rank);
}

double PeftConfig::scale_of(const std::string& module) const {
  const int own_rank = rank_of(module);
  return value_of(alphas, module, where + ": alpha_pattern", alpha) /
         (rank_stabilized ? std::sqrt(static_cast<double>(own_rank)) : own_rank);
}

bool PeftConfig::expects(const std::string& module) const {
  if (!targets.is_complete) return false;
  if (targets.all) return true;
  if (targets.pattern) return fits_pattern(*targets.pattern, module, where + ": target_modules");
  return std::ranges::any_of(
      targets.names, [&](const std::string& name) { return module == name || module.ends_with("." + name); });
}

PeftConfig read_peft_config(const AdapterFolder& folder) {
  const JsonNode& config = folder.config();
  refuse_variants(config);
  PeftConfig read;
  read.where = config.where();
  read.rank = config.integer("r", 1, kernels::kMaxAdapterRank);
  read.alpha = config.find_positive("lora_alpha").value_or(read.alpha);
  read.rank_stabilized = config.boolean_or("use_rslora", false);
  read.ranks =
      read_patterns<int>(folder, "rank_pattern", [](const JsonNode& values, const std::string& pattern) {
        return values.integer(pattern, 1, kernels::kMaxAdapterRank);
      });
  read.alphas = read_patterns<double>(
      folder, "alpha_pattern",
      [](const JsonNode& values, const std::string& pattern) { return values.positive(pattern); });
  read.targets = read_targets(config);
  return read;
}

}  // namespace attend
