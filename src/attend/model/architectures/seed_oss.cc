// SeedOssForCausalLM: Llama, with a flag of its own for the bias of the output projection.
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_seed_oss_config(const JsonNode& json, ModelConfig& config) {
  config.attention_bias = json.find_boolean("attention_bias").value_or(true);
  config.attention_output_bias = json.find_boolean("attention_out_bias").value_or(false);
  config.mlp_bias = json.find_boolean("mlp_bias").value_or(false);
}

}  // namespace

constinit const ModelArchitecture kSeedOss{.name = "SeedOssForCausalLM",
                                           .read_config = read_seed_oss_config,
                                           .default_num_kv_heads = 8,
                                           .default_head_dim = 128,
                                           .names = {}};

}  // namespace attend
