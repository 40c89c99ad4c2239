// ModelArchitecture: what one Hugging Face architecture adds to the common decoder, as data and one function.
//
// A new dense architecture is a file in architectures/ that defines such a record, and a line in the table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "attend/checkpoint/json.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/config/read_rope.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

// What an absent field of config.json means; 0: the field has to be there, or what the comment says.
struct ConfigDefaults {
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int num_layers = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;  // 0: num_q_heads
  int head_dim = 0;      // 0: hidden_size / num_q_heads
  int max_position_embeddings = 0;
  double norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  RopeDefaults rope = {};
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  int image_token_id = -1;  // -1: the model has none
};

// Makes every layer the same attention, without a window, and the same gated MLP.
void make_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);
// The same, with one set of rotary embeddings for all.
void read_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);

// kNested: in `text_config`. kEither: there, or beside it where there is no `text_config` (old Qwen2.5-VL).
enum class TextConfig : uint8_t { kFlat, kNested, kEither };

struct ModelArchitecture {
  std::string_view name;
  // Makes spec.layers of so many, and spec.ropes, of the fields that its kinds of layers have.
  void (*read_layers)(const JsonNode& json, const ConfigDefaults& defaults,
                      ModelSpec& spec) = read_dense_layers;
  // Fills in what config.json's other fields mean for this architecture: biases, norms, windows. Null:
  // nothing.
  void (*read_config)(const JsonNode& json, ModelSpec& spec) = nullptr;
  ConfigDefaults defaults = {};
  // Where the fields of the decoder stand, but for those of files and tokens.
  TextConfig text_config = TextConfig::kFlat;
  // Layers behind the last may be in a checkpoint, for multi-token prediction: they are left out.
  bool predicts_more_tokens = false;
  DecoderNames names = {};
  // Ways to name the tensors in a checkpoint; the first by which the embedding is there counts. None: as
  // `names` has them.
  std::span<const WeightPrefixes> prefixes = {};
};

extern const ModelArchitecture kBert;
extern const ModelArchitecture kDeepseekV2;
extern const ModelArchitecture kDeepseekV3;
extern const ModelArchitecture kDots1;
extern const ModelArchitecture kErnie45;
extern const ModelArchitecture kExaone4;
extern const ModelArchitecture kGemma;
extern const ModelArchitecture kGemma2;
extern const ModelArchitecture kGemma3;
extern const ModelArchitecture kGemma3Embedding;
extern const ModelArchitecture kGemma3Multimodal;
extern const ModelArchitecture kGlm;
extern const ModelArchitecture kGlm4;
extern const ModelArchitecture kGlm4Moe;
extern const ModelArchitecture kGlm4MoeLite;
extern const ModelArchitecture kGptOss;
extern const ModelArchitecture kGranite;
extern const ModelArchitecture kInternLm3;
extern const ModelArchitecture kLlama;
extern const ModelArchitecture kLlama4;
extern const ModelArchitecture kLlama4Multimodal;
extern const ModelArchitecture kMiniMaxM2;
extern const ModelArchitecture kMinistral;
extern const ModelArchitecture kMinistral3;
extern const ModelArchitecture kMistral;
extern const ModelArchitecture kMistral3;
extern const ModelArchitecture kMixtral;
extern const ModelArchitecture kOlmo2;
extern const ModelArchitecture kOlmo3;
extern const ModelArchitecture kOlmoe;
extern const ModelArchitecture kPhi3;
extern const ModelArchitecture kQwen2;
extern const ModelArchitecture kQwen25Vl;
extern const ModelArchitecture kQwen2Vl;
extern const ModelArchitecture kQwen3;
extern const ModelArchitecture kQwen3Moe;
extern const ModelArchitecture kQwen3Vl;
extern const ModelArchitecture kQwen3VlMoe;
extern const ModelArchitecture kRoberta;
extern const ModelArchitecture kSeedOss;
extern const ModelArchitecture kSmolLm3;

// Throws Error(kUnsupported) with the known ones; `where` is the place that named it, for the message.
const ModelArchitecture& find_architecture(std::string_view name, const std::string& where);

// Refuses a field, if it is there, that is not `expected`: what attend and transformers compute without
// reading it.
void expect_string(const JsonNode& json, const char* key, std::string_view expected);

// Parts of make_dense_layers().
AttentionSpec read_attention(const JsonNode& json, const ConfigDefaults& defaults, int hidden_size);
GatedMlpSpec read_gated_mlp(const JsonNode& json, const ConfigDefaults& defaults);

// What an absent field of a mixture of experts means, and which field has the size of one expert.
struct MoeDefaults {
  int num_experts = 0;
  int top_k = 0;
  std::string_view top_k_alias = {};      // another name of num_experts_per_tok, where that is absent
  const char* num_experts_key = nullptr;  // null: num_experts, or num_local_experts
  std::string_view intermediate_key = "moe_intermediate_size";
  int intermediate_size = 0;  // 0: the field has to be there
};
// The number of experts, num_experts_per_tok and the size. Refuses more of a token than there
// are, more than attend routes among, and activations other than silu.
MoeMlpSpec read_moe_mlp(const JsonNode& json, const MoeDefaults& defaults);

// The layers that slide, as layer_types names them. Refuses other types, and another number of layers.
std::vector<bool> read_layer_types(const JsonNode& types, int num_layers);

// By layer: whether it rotates q and k. no_rope_layers has a 1 for those that do; without it every
// no_rope_layer_interval-th does not (Llama 4, SmolLM 3).
std::vector<bool> read_rotated_layers(const JsonNode& json, size_t num_layers);

// sliding_window (`missing` when it is absent) as window_left of these layers. Refuses null when there are
// some.
void read_windows(const JsonNode& json, const std::vector<bool>& slides, ModelSpec& spec, int missing = 4096);
// The same of the layers that layer_types names or, without it, of all but every `full_every`-th.
void read_alternating_windows(const JsonNode& json, int full_every, int missing, ModelSpec& spec);
// A window of `sliding_window` tokens, the token itself one of them, for these layers.
void set_windows(ModelSpec& spec, const std::vector<bool>& slides, int sliding_window);

// sliding_window as window_left of the layers that layer_types (or, without it, max_window_layers) gives one,
// when use_sliding_window is true: how the Qwen models say it.
void read_layer_windows(const JsonNode& json, ModelSpec& spec);

// For read_config(): changes what all layers have alike.
void for_each_attention(ModelSpec& spec, const std::function<void(AttentionSpec&)>& change);
void for_each_gated_mlp(ModelSpec& spec, const std::function<void(GatedMlpSpec&)>& change);

}  // namespace attend
