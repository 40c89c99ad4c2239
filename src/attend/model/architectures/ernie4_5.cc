// Ernie4_5ForCausalLM: Llama with interleaved RoPE and one flag for all biases.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_ernie4_5_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("use_bias", false);
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = bias; });
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
}

}  // namespace

constinit const ModelArchitecture kErnie45{.name = "Ernie4_5ForCausalLM",
                                           .read_config = read_ernie4_5_config,
                                           .defaults = {.num_kv_heads = 2,
                                                        .head_dim = 128,
                                                        .norm_eps = 1e-5,
                                                        .tie_word_embeddings = true,
                                                        .rope = {.theta = 500000.0}},
                                           .prediction = &kErnie45Prediction};

}  // namespace attend
