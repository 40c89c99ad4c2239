// SeedOssForCausalLM: Llama with a separate flag for the bias of the output projection.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_seed_oss_config(const JsonNode& json, ModelSpec& spec) {
  const bool qkv_bias = json.find_boolean("attention_bias").value_or(true);
  const bool output_bias = json.find_boolean("attention_out_bias").value_or(false);
  for_each_attention(spec, [&](AttentionSpec& attention) {
    attention.qkv_bias = qkv_bias;
    attention.output_bias = output_bias;
  });
  const bool mlp_bias = json.find_boolean("mlp_bias").value_or(false);
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
}

}  // namespace

constinit const ModelArchitecture kSeedOss{.name = "SeedOssForCausalLM",
                                           .models = "Seed-OSS",
                                           .read_config = read_seed_oss_config,
                                           .defaults = {.num_kv_heads = 8, .head_dim = 128}};

}  // namespace attend
