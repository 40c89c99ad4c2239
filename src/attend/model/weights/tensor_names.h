// Names of a decoder's tensors in a checkpoint.
#pragma once

#include <span>
#include <string_view>

namespace attend {

// What the weights are called: "<layers>.<layer><part>.weight" and, where there is one, ".bias". Names of
// what a model does not have are not read.
struct DecoderNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = "";  // of LearnedPositions, and so the next two
  std::string_view token_types = "";
  std::string_view embedding_norm = "";
  std::string_view layers = "model.layers";
  std::string_view final_norm = "model.norm";
  std::string_view lm_head = "lm_head";
  std::string_view attention_norm = "input_layernorm";
  std::string_view q_proj = "self_attn.q_proj";
  std::string_view k_proj = "self_attn.k_proj";
  std::string_view v_proj = "self_attn.v_proj";
  std::string_view qkv_proj = "self_attn.qkv_proj";
  std::string_view o_proj = "self_attn.o_proj";
  std::string_view q_a_proj = "self_attn.q_a_proj";
  std::string_view q_a_norm = "self_attn.q_a_layernorm";
  std::string_view q_b_proj = "self_attn.q_b_proj";
  std::string_view kv_a_proj = "self_attn.kv_a_proj_with_mqa";
  std::string_view kv_a_norm = "self_attn.kv_a_layernorm";
  std::string_view kv_b_proj = "self_attn.kv_b_proj";
  std::string_view q_norm = "self_attn.q_norm";
  std::string_view k_norm = "self_attn.k_norm";
  std::string_view sinks = "self_attn.sinks";                         // the tensor's whole name
  std::string_view attention_post_norm = "post_attention_layernorm";  // behind it, or of the stream there
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view gate_proj = "mlp.gate_proj";
  std::string_view up_proj = "mlp.up_proj";
  std::string_view gate_up_proj = "mlp.gate_up_proj";
  std::string_view down_proj = "mlp.down_proj";
  std::string_view mlp_post_norm = "post_feedforward_layernorm";
  std::string_view router = "mlp.gate";
  std::string_view experts = "mlp.experts";  // "<experts>.<expert>.<part>"
  std::string_view expert_gate_proj = "gate_proj";
  std::string_view expert_up_proj = "up_proj";
  std::string_view expert_down_proj = "down_proj";
  // Of all experts: "<experts>.<part>", and "_bias" behind it.
  std::string_view fused_gate_up_proj = "gate_up_proj";
  std::string_view fused_down_proj = "down_proj";
  std::string_view router_correction = "mlp.gate.e_score_correction_bias";  // the whole name
  std::string_view shared_gate_proj = "mlp.shared_experts.gate_proj";
  std::string_view shared_up_proj = "mlp.shared_experts.up_proj";
  std::string_view shared_down_proj = "mlp.shared_experts.down_proj";
};

// A name that begins with `from` begins with `to` in a checkpoint.
struct WeightPrefix {
  std::string_view from, to;
};
// One way to name a model's tensors, whose parts a checkpoint may have under several prefixes: the first
// prefix that fits a name counts, and a name that none fits stays.
using WeightPrefixes = std::span<const WeightPrefix>;

}  // namespace attend
