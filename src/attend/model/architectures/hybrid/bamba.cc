// BambaForCausalLM: Mamba-2 in most layers, attention in those of attn_layer_indices, and a gated MLP in all.
#include <vector>

#include "attend/model/architectures/hybrid/mamba2.h"

namespace attend {
namespace {

void read_bamba_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", false), mlp_bias = json.boolean_or("mlp_bias", false);
  const int head_dim = std::get<AttentionSpec>(spec.layers.front().mixer).head_dim;
  // transformers ignores the field of the config.
  spec.ropes.at(0).rotary_dim = head_dim / 2 / 2 * 2;
  for_each_attention(spec,
                     [&](AttentionSpec& attention) { attention.qkv_bias = attention.output_bias = bias; });
  for_each_gated_mlp(spec, [&](GatedMlpSpec& mlp) { mlp.bias = mlp_bias; });
  std::vector<bool> is_mamba(spec.layers.size(), true);
  if (const auto full = json.find("attn_layer_indices"))
    for (size_t i = 0; i < full->array_size(); ++i)
      is_mamba[static_cast<size_t>(full->at(i).integer(0, spec.num_layers() - 1))] = false;
  const Mamba2Spec mamba = read_mamba2(json, spec);
  for (size_t i = 0; i < is_mamba.size(); ++i)
    if (is_mamba[i]) spec.layers[i].mixer = mamba;
}

}  // namespace

constinit const ModelArchitecture kBamba{.name = "BambaForCausalLM",
                                         .models = "Bamba 9B",
                                         .read_config = read_bamba_config,
                                         .defaults = {.vocab_size = 128000,
                                                      .hidden_size = 4096,
                                                      .intermediate_size = 14336,
                                                      .num_layers = 32,
                                                      .num_q_heads = 32,
                                                      .num_kv_heads = 8,
                                                      .max_position_embeddings = 262144,
                                                      .norm_eps = 1e-5,
                                                      .rope = {.partial_rotary_factor = 0.5}},
                                         .names = kBambaNames};

}  // namespace attend
