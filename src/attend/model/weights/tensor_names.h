// Names of the tensors of a decoder in a checkpoint.
#pragma once

#include <span>
#include <string_view>

namespace attend {

// Weights have names "<layers>.<layer>.<part>.weight" and, with a bias, ".bias". Names of parts that the
// model does not have are not used.
struct DecoderNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions = "";  // this and the next two: LearnedPositions
  std::string_view token_types = "";
  std::string_view embedding_norm = "";
  // Embeddings per layer: the table, the projection of the embedding and its norm; then names in each layer.
  std::string_view layer_table = "";
  std::string_view layer_table_proj = "";
  std::string_view layer_table_norm = "";
  std::string_view layer_embedding_gate = "";
  std::string_view layer_embedding_proj = "";
  std::string_view layer_embedding_norm = "";
  std::string_view layer_scale = "";  // full name
  std::string_view layers = "model.layers";
  std::string_view final_norm = "model.norm";
  std::string_view lm_head = "lm_head";
  std::string_view attention_norm = "input_layernorm";
  // Norms of parallel sublayers with one each; empty: attention_norm and mlp_norm.
  std::string_view parallel_attention_norm = "";
  std::string_view parallel_mlp_norm = "";
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
  std::string_view index_q_proj = "self_attn.indexer.wq_b";
  std::string_view index_k_proj = "self_attn.indexer.wk";
  std::string_view index_k_norm = "self_attn.indexer.k_norm";
  std::string_view index_weights_proj = "self_attn.indexer.weights_proj";
  std::string_view q_norm = "self_attn.q_norm";
  std::string_view k_norm = "self_attn.k_norm";
  std::string_view output_gate_proj = "";                             // with a projection of its own
  std::string_view sinks = "self_attn.sinks";                         // full name of the tensor
  std::string_view attention_post_norm = "post_attention_layernorm";  // norm after the sublayer or the sum
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view gate_proj = "mlp.gate_proj";
  std::string_view up_proj = "mlp.up_proj";
  std::string_view gate_up_proj = "mlp.gate_up_proj";
  std::string_view down_proj = "mlp.down_proj";
  std::string_view xielu_alpha_p = "mlp.act_fn.alpha_p";  // full names
  std::string_view xielu_alpha_n = "mlp.act_fn.alpha_n";
  std::string_view mlp_post_norm = "post_feedforward_layernorm";
  std::string_view router = "mlp.gate";
  std::string_view experts = "mlp.experts";  // "<experts>.<expert>.<part>"
  std::string_view expert_gate_proj = "gate_proj";
  std::string_view expert_up_proj = "up_proj";
  std::string_view expert_down_proj = "down_proj";
  // Tensors with all experts: "<experts>.<part>" and "<experts>.<part>_bias".
  std::string_view fused_gate_up_proj = "gate_up_proj";
  std::string_view fused_down_proj = "down_proj";
  std::string_view router_norm = "";    // full name: weights of the norm of the router's input
  std::string_view expert_scales = "";  // full name
  // ParallelMoeSpec: norms after the dense MLP, and before and after the experts.
  std::string_view dense_post_norm = "";
  std::string_view moe_norm = "";
  std::string_view moe_post_norm = "";
  std::string_view router_correction = "mlp.gate.e_score_correction_bias";  // full name
  std::string_view shared_gate_proj = "mlp.shared_experts.gate_proj";
  std::string_view shared_up_proj = "mlp.shared_experts.up_proj";
  std::string_view shared_down_proj = "mlp.shared_experts.down_proj";
  std::string_view latent_in_proj = "";  // of the routed experts
  std::string_view latent_out_proj = "";
  std::string_view shared_gate = "mlp.shared_expert_gate";
  // Gated delta net. Grouped projections: in_proj_qkvz and in_proj_ba; else in_proj_q to in_proj_a. Parts
  // with the same name are rows of one tensor.
  std::string_view in_proj_qkvz = "linear_attn.in_proj_qkvz";
  std::string_view in_proj = "";  // short convolution, Mamba-2; also out_proj
  std::string_view in_proj_ba = "linear_attn.in_proj_ba";
  std::string_view in_proj_q = "linear_attn.in_proj_qkv";
  std::string_view in_proj_k = "linear_attn.in_proj_qkv";
  std::string_view in_proj_v = "linear_attn.in_proj_qkv";
  std::string_view in_proj_z = "linear_attn.in_proj_z";
  std::string_view in_proj_b = "linear_attn.in_proj_b";
  std::string_view in_proj_a = "linear_attn.in_proj_a";
  std::string_view second_proj_z = "";  // with GatedDeltaSpec::gate_rank
  std::string_view second_proj_a = "";
  std::string_view conv_q = "linear_attn.conv1d";
  std::string_view conv_k = "linear_attn.conv1d";
  std::string_view conv_v = "linear_attn.conv1d";
  std::string_view conv = "";                        // short convolution, Mamba-2
  std::string_view a_log = "linear_attn.A_log";      // full name of the tensor
  std::string_view dt_bias = "linear_attn.dt_bias";  // full name
  std::string_view state_d = "";                     // full name; Mamba-2
  std::string_view gated_norm = "linear_attn.norm";
  std::string_view out_proj = "linear_attn.out_proj";
  // Input of a draft head (DraftSpec). Here and in final_norm of drafts, a name that begins with a dot
  // belongs to layer 0.
  std::string_view draft_projection = "";
  std::string_view draft_embedding_norm = "";
  std::string_view draft_hidden_norm = "";
  std::string_view draft_state_norms = "";  // "<name>.<index>"
  std::string_view draft_states_norm = "";
  std::string_view draft_tokens = "";  // full name: offset of each head row's token from its index
  // Weight that identifies the naming scheme of a checkpoint; empty: the embedding.
  std::string_view scheme = "";
};

// Replaces the prefix `from` of a name by `to` in a checkpoint.
struct WeightPrefix {
  std::string_view from, to;
};
// Naming scheme of a checkpoint, with prefixes for the parts of a model. The first prefix that matches a name
// applies. Names without a match stay unchanged.
using WeightPrefixes = std::span<const WeightPrefix>;

// Prefixes of the tensors of a vision tower and of its merger in a checkpoint.
struct VisionPrefix {
  std::string_view tower, merger;
};

// Names of the tensors of a vision tower, below its prefixes. Weights have names
// "<layers>.<layer>.<part>.weight" and, with a bias, ".bias".
struct VisionNames {
  std::string_view patch_embedding = "patch_embed.proj";
  std::string_view positions = "pos_embed";  // with VisionSpec::axis_positions, a full name
  std::string_view first_norm = "";
  std::string_view layers = "blocks";
  std::string_view attention_norm = "norm1";
  std::string_view q_proj = "attn.qkv";
  std::string_view k_proj = "attn.qkv";
  std::string_view v_proj = "attn.qkv";
  std::string_view q_norm = "";
  std::string_view k_norm = "";
  std::string_view o_proj = "attn.proj";
  std::string_view attention_post_norm = "";
  std::string_view mlp_norm = "norm2";
  std::string_view gate_proj = "mlp.gate_proj";
  std::string_view up_proj = "mlp.linear_fc1";
  std::string_view down_proj = "mlp.linear_fc2";
  std::string_view mlp_post_norm = "";
  // Ends of names of projections with VisionSpec::clamps; bounds have "<projection>.input_min" and others.
  std::string_view clipped = "";
  std::string_view std_bias = "", std_scale = "";  // full names: VisionSpec::standardizes
  // The patch norm of VisionMerge::kMean is part of the tower; other names are below VisionPrefix::merger.
  std::string_view merger_norm = "merger.norm";
  std::string_view merger_token_norm = "";  // kMean
  std::string_view merger_join = "";        // kChannelJoin
  std::string_view merger_in = "merger.linear_fc1";
  std::string_view merger_out = "merger.linear_fc2";     // kMean: full name of a matrix [in, out]
  std::string_view deepstack = "deepstack_merger_list";  // "<deepstack>.<i>.<part>"
  std::string_view deepstack_norm = "norm";
  std::string_view deepstack_in = "linear_fc1";
  std::string_view deepstack_out = "linear_fc2";
  // In checkpoints of different ages.
  std::span<const VisionPrefix> prefixes = {};
};

}  // namespace attend
