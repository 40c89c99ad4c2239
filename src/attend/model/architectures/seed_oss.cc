// SeedOssForCausalLM: Llama, with a flag of its own for the bias of the output projection.
#include "attend/model/architecture.h"

namespace attend {
namespace {

void read_seed_oss_config(const JsonNode& json, ModelSpec& spec) {
  const bool qkv_bias = json.find_boolean("attention_bias").value_or(true);
  const bool output_bias = json.find_boolean("attention_out_bias").value_or(false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = qkv_bias;
    attention.output_bias = output_bias;
  });
  set_mlp_bias(spec, json.find_boolean("mlp_bias").value_or(false));
}

}  // namespace

constinit const ModelArchitecture kSeedOss{.name = "SeedOssForCausalLM",
                                           .read_config = read_seed_oss_config,
                                           .default_num_kv_heads = 8,
                                           .default_head_dim = 128,
                                           .names = {}};

}  // namespace attend
