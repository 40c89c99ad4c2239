// GlmForCausalLM: Llama with half of each head rotated in neighbouring pairs, gate and up in one tensor, and
// biases of q, k and v.
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void read_glm_config(const JsonNode& json, ModelSpec& spec) {
  const bool bias = json.boolean_or("attention_bias", true);
  for_each_attention(spec, [&](AttentionSpec& attention) { attention.qkv_bias = bias; });
  for_each_gated_mlp(spec, [](GatedMlpSpec& mlp) { mlp.fused_gate_up = true; });
  for (RopeConfig& rope : spec.ropes) rope.interleaved = true;
}

}  // namespace

constinit const ModelArchitecture kGlm{
    .name = "GlmForCausalLM",
    .read_config = read_glm_config,
    .defaults = {
        .num_kv_heads = 2, .head_dim = 128, .norm_eps = 1.5625e-7, .rope = {.partial_rotary_factor = 0.5}}};

}  // namespace attend
