// ModelSpec: what a model computes, layer by layer, as data read from the config.json of a Hugging Face
// model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/kernels/fused/linear_ops.h"
#include "attend/model/rope_config.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// x += Wo attention(rope(qk_norm(Wq norm(x))), ..): grouped-query attention with a norm before it.
struct AttentionSpec {
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;    // of q k^T
  int window_left = -1;  // inclusive; -1: full attention
  int rope_set = 0;      // of ModelSpec::ropes
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // RMSNorm of each q and k head before RoPE (Qwen3)
};

// x += Wdown (act(Wgate norm(x)) * Wup norm(x)), with a norm before it.
struct GatedMlpSpec {
  int intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool bias = false;
};

// What mixes tokens and what does not; further kinds of either are further alternatives, each with a module.
using MixerSpec = std::variant<AttentionSpec>;
using MlpSpec = std::variant<GatedMlpSpec>;

struct LayerSpec {
  MixerSpec mixer;
  MlpSpec mlp;
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int hidden_size = 0;
  int vocab_size = 0;
  int max_position_embeddings = 0;
  float norm_eps = 1e-6f;
  std::vector<LayerSpec> layers;
  std::vector<RopeConfig> ropes;  // sets of rotary embeddings, which layers name
  bool tie_word_embeddings = false;
  DType dtype = DType::kF32;           // of the weights as config.json names it
  std::vector<int32_t> eos_token_ids;  // config.json's, then what generation_config.json adds
  std::optional<int32_t> bos_token_id;

  int num_layers() const { return static_cast<int>(layers.size()); }
  // The attention layers, for backends and pools.
  ModelGeometry geometry(DType activation_dtype, DType kv_dtype) const;
  // Tokens of the longest sequence that the position embeddings serve: max_position_embeddings, times what
  // rope scaling stretches it by.
  int max_context_len() const;
};

// Layer `layer_id` of the model's cache and backend.
AttentionLayer attention_layer(const AttentionSpec& spec, int layer_id);

// Reads config.json (and generation_config.json when it is there) of a model directory. An absent field means
// what transformers takes it for; a field that attend does not know is ignored. Throws Error(kNotFound),
// Error(kCorruptFile) naming file and field, or Error(kUnsupported) with what attend has.
ModelSpec read_config(const std::filesystem::path& directory);

// The architectures that load_model knows: "LlamaForCausalLM", ...
std::vector<std::string> supported_architectures();

}  // namespace attend
#pragma GCC visibility pop
