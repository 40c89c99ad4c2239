// Fields of Mamba-2 layers that several architectures share.
#pragma once

#include "attend/model/architectures/architecture.h"

namespace attend {

// Names of the fields of config.json, and values of absent fields.
struct Mamba2Fields {
  const char* num_heads = "mamba_n_heads";
  const char* head_dim = "mamba_d_head";
  const char* num_groups = "mamba_n_groups";
  const char* state_dim = "mamba_d_state";
  const char* conv_kernel = "mamba_d_conv";
  const char* conv_bias = "mamba_conv_bias";
  int missing_head_dim = 0;  // 0: features of the layer / number of heads
  int missing_groups = 1;
  int missing_state_dim = 256;
};

// Reads a layer with `features` features; 0: a product of heads and head dim without a further condition.
// `norm_eps`: epsilon of the gated norm. `features_name`: meaning of `features`, for the message.
Mamba2Spec read_mamba2(const JsonNode& json, const Mamba2Fields& fields, float norm_eps, int64_t features,
                       const char* features_name = "mamba_expand * hidden_size");
// Same for the names above and mamba_expand * hidden_size features.
Mamba2Spec read_mamba2(const JsonNode& json, const ModelSpec& spec);

// Names of the tensors of Bamba, which Falcon-H1 uses too.
inline constexpr DecoderNames kBambaNames = {.final_norm = "model.final_layernorm",
                                             .mlp_norm = "pre_ff_layernorm",
                                             .gate_proj = "feed_forward.gate_proj",
                                             .up_proj = "feed_forward.up_proj",
                                             .down_proj = "feed_forward.down_proj",
                                             .in_proj = "mamba.in_proj",
                                             .conv = "mamba.conv1d",
                                             .a_log = "mamba.A_log",
                                             .dt_bias = "mamba.dt_bias",
                                             .state_d = "mamba.D",
                                             .gated_norm = "mamba.norm",
                                             .out_proj = "mamba.out_proj"};

}  // namespace attend
