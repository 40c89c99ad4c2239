// ModelArchitecture: differences of one Hugging Face architecture from the common decoder, as data and
// functions that read config.json.
//
// A new dense architecture is a file in architectures/ that defines such a record, and a line in the table.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "attend/checkpoint/json.h"
#include "attend/model/config/classifier_spec.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/config/read_rope.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

// Names of common fields of config.json.
struct ConfigKeys {
  const char* hidden_size = "hidden_size";
  const char* intermediate_size = "intermediate_size";
  const char* num_layers = "num_hidden_layers";
  const char* num_q_heads = "num_attention_heads";
  const char* num_kv_heads = "num_key_value_heads";
  const char* max_position_embeddings = "max_position_embeddings";
  const char* norm_eps = "rms_norm_eps";
  const char* activation = "hidden_act";
};

// Values of absent fields of config.json. 0 means that the field is required, unless a comment defines it.
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
  std::string_view activation = "silu";
  int image_token_id = -1;  // -1: the model has none
  ConfigKeys keys = {};
  kernels::NormKind norm_kind = kernels::NormKind::kRms;
  bool norm_biases = false;
};

// Sets spec.layers: the same attention without a window, and the same gated MLP in every layer.
void make_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);
// Same as make_dense_layers(), and sets one rotary embedding for all layers.
void read_dense_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);

// Place of the decoder's fields in config.json. kFlat: top level. kNested: in `text_config`. kEither: in
// `text_config` if it exists, otherwise at top level (old Qwen2.5-VL).
enum class TextConfig : uint8_t { kFlat, kNested, kEither };

// Meaning of eagle_aux_hidden_state_layer_ids in drafts for an architecture. kOutputs: the stream after these
// layers. kInputsUpToLast: if the last id is the number of layers, the stream before them, otherwise after
// them (gpt-oss). kOutputsFromFirst: if the first id is 1, the stream after them, otherwise before them
// (DeepSeek).
enum class AuxIds : uint8_t { kOutputs, kInputsUpToLast, kOutputsFromFirst };

// Head of decoders: one matrix, applied to the last token.
inline constexpr HeadLayer kScoreHead[] = {{.name = "score", .bias = false}};

// Objects of a config.json with an encoder of images.
struct VisionConfig {
  const JsonNode& file;     // top level
  const JsonNode& vision;   // vision_config
  const JsonNode& decoder;  // fields of the decoder
};

// Encoder of images.
struct VisionArchitecture {
  // Sets spec.vision, and the properties of the decoder that only images have. If attend does not have the
  // encoder, sets spec.no_vision instead.
  void (*read)(const VisionConfig& config, ModelSpec& spec);
  VisionNames names = {};
};

extern const VisionArchitecture kGemma3Vision;
extern const VisionArchitecture kGemma4Vision;
extern const VisionArchitecture kMistral3Vision;
extern const VisionArchitecture kQwen25Vision;
extern const VisionArchitecture kQwen35Vision;
extern const VisionArchitecture kQwen3Vision;

struct ModelArchitecture {
  std::string_view name;
  std::string_view models = "";  // published models, for docs; empty: a draft
  // Sets spec.layers and spec.ropes from the fields of the architecture's kinds of layers.
  void (*read_layers)(const JsonNode& json, const ConfigDefaults& defaults,
                      ModelSpec& spec) = read_dense_layers;
  // Sets biases, norms, windows and similar properties from the other fields. Null: no further properties.
  void (*read_config)(const JsonNode& json, ModelSpec& spec) = nullptr;
  ConfigDefaults defaults = {};
  // Place of the decoder's fields. Fields for files and tokens are always at top level too.
  TextConfig text_config = TextConfig::kFlat;
  // The checkpoint may have layers after the last one, for multi-token prediction. They are not loaded.
  bool predicts_more_tokens = false;
  // Architecture of these layers as a draft; null: none. If its DecoderNames::layers are the same, its layer
  // follows the last one.
  const ModelArchitecture* prediction = nullptr;
  // Draft heads: sets spec.draft, after the other functions. Null: the architecture is not a draft head.
  void (*read_draft)(const JsonNode& json, ModelSpec& spec) = nullptr;
  AuxIds aux_ids = AuxIds::kOutputs;  // in drafts for this target
  DecoderNames names = {};
  // Head of the architecture's "...ForSequenceClassification".
  std::span<const HeadLayer> classifier = kScoreHead;
  // Alternative naming schemes of checkpoints: the first one with which the files have the embedding applies.
  // Without a match, tensors have the names in `names`.
  std::span<const WeightPrefixes> prefixes = {};
  // Encoder of images; null: none, or one that attend does not have.
  const VisionArchitecture* vision = nullptr;
};

extern const ModelArchitecture kApertus;
extern const ModelArchitecture kArcee;
extern const ModelArchitecture kBamba;
extern const ModelArchitecture kBert;
extern const ModelArchitecture kCohere2;
extern const ModelArchitecture kCohere2Moe;
extern const ModelArchitecture kCohere;
extern const ModelArchitecture kDeepseekV2;
extern const ModelArchitecture kDeepseekV3;
extern const ModelArchitecture kDeepseekV32;
extern const ModelArchitecture kDeepseekV3Prediction;
extern const ModelArchitecture kDots1;
extern const ModelArchitecture kEagle3;
extern const ModelArchitecture kEagle;
extern const ModelArchitecture kErnie45;
extern const ModelArchitecture kErnie45Moe;
extern const ModelArchitecture kErnie45Prediction;
extern const ModelArchitecture kExaone4;
extern const ModelArchitecture kExaoneMoe;
extern const ModelArchitecture kFalcon;
extern const ModelArchitecture kFalconH1;
extern const ModelArchitecture kGemma2;
extern const ModelArchitecture kGemma3;
extern const ModelArchitecture kGemma3Embedding;
extern const ModelArchitecture kGemma3Multimodal;
extern const ModelArchitecture kGemma4;
extern const ModelArchitecture kGemma4Multimodal;
extern const ModelArchitecture kGemma4Unified;
extern const ModelArchitecture kGemma4UnifiedMultimodal;
extern const ModelArchitecture kGemma;
extern const ModelArchitecture kGlm4;
extern const ModelArchitecture kGlm4Moe;
extern const ModelArchitecture kGlm4MoeLite;
extern const ModelArchitecture kGlm4MoeLitePrediction;
extern const ModelArchitecture kGlm4MoePrediction;
extern const ModelArchitecture kGlm;
extern const ModelArchitecture kGlmMoeDsa;
extern const ModelArchitecture kGpt2;
extern const ModelArchitecture kGptJ;
extern const ModelArchitecture kGptNeoX;
extern const ModelArchitecture kGptOss;
extern const ModelArchitecture kGranite;
extern const ModelArchitecture kGraniteMoe;
extern const ModelArchitecture kGraniteMoeHybrid;
extern const ModelArchitecture kGraniteMoeShared;
extern const ModelArchitecture kHunYuanDenseV1;
extern const ModelArchitecture kHunYuanMoeV1;
extern const ModelArchitecture kHyV3;
extern const ModelArchitecture kInternLm3;
extern const ModelArchitecture kKimiK25;
extern const ModelArchitecture kKimiK25Saved;
extern const ModelArchitecture kKimiLinear;
extern const ModelArchitecture kLaguna;
extern const ModelArchitecture kLfm2;
extern const ModelArchitecture kLfm2Moe;
extern const ModelArchitecture kLlama4;
extern const ModelArchitecture kLlama4Multimodal;
extern const ModelArchitecture kLlama;
extern const ModelArchitecture kMiMo;
extern const ModelArchitecture kMiMoPrediction;
extern const ModelArchitecture kMiMoV2Flash;
extern const ModelArchitecture kMiniCpm3;
extern const ModelArchitecture kMiniMaxM2;
extern const ModelArchitecture kMinistral3;
extern const ModelArchitecture kMinistral;
extern const ModelArchitecture kMistral3;
extern const ModelArchitecture kMistral4;
extern const ModelArchitecture kMistral;
extern const ModelArchitecture kMixtral;
extern const ModelArchitecture kMuseGlimmer;
extern const ModelArchitecture kNemotron;
extern const ModelArchitecture kNemotronH;
extern const ModelArchitecture kOlmo2;
extern const ModelArchitecture kOlmo3;
extern const ModelArchitecture kOlmo;
extern const ModelArchitecture kOlmoe;
extern const ModelArchitecture kOlmoHybrid;
extern const ModelArchitecture kOpt;
extern const ModelArchitecture kPhi3;
extern const ModelArchitecture kPhi;
extern const ModelArchitecture kPhiMoe;
extern const ModelArchitecture kPhiMoeSaved;
extern const ModelArchitecture kQwen25Vl;
extern const ModelArchitecture kQwen2;
extern const ModelArchitecture kQwen2Moe;
extern const ModelArchitecture kQwen2Vl;
extern const ModelArchitecture kQwen35;
extern const ModelArchitecture kQwen35Moe;
extern const ModelArchitecture kQwen35MoeText;
extern const ModelArchitecture kQwen35Text;
extern const ModelArchitecture kQwen3;
extern const ModelArchitecture kQwen3Moe;
extern const ModelArchitecture kQwen3Next;
extern const ModelArchitecture kQwen3NextPrediction;
extern const ModelArchitecture kQwen3Vl;
extern const ModelArchitecture kQwen3VlMoe;
extern const ModelArchitecture kRoberta;
extern const ModelArchitecture kSeedOss;
extern const ModelArchitecture kSmolLm3;
extern const ModelArchitecture kStableLm;
extern const ModelArchitecture kStarcoder2;
extern const ModelArchitecture kXlmRoberta;

// "<X>ForSequenceClassification" is the architecture "<X>ForCausalLM" or "<X>Model" with a classification
// head. Throws Error(kUnsupported) with the supported architectures. `where`: the field with the name, for
// the message.
const ModelArchitecture& find_architecture(std::string_view name, const std::string& where);

// Rejects a field with a value other than `expected`, which attend and transformers assume without reading
// the field.
void expect_string(const JsonNode& json, const char* key, std::string_view expected);

// Reads a factor of activations, 1 if it is absent. Those of published models are between 0.005 and 30.
// Rejects those below 1 / 65536 and above 65536.
double read_activation_factor(const JsonNode& json, const char* key);

// Sets a model whose sublayers f compute x += residual f(norm(x)), with embeddings times `embedding`. The
// stream stores x / residual, so f is added without a factor: RMSNorm of x / r with epsilon / r^2 equals
// RMSNorm of x with epsilon, and only norms read the stream.
void set_residual_scale(double residual, double embedding, ModelSpec& spec);

// Parts of make_dense_layers().
AttentionSpec read_attention(const JsonNode& json, const ConfigDefaults& defaults, int hidden_size);
GatedMlpSpec read_gated_mlp(const JsonNode& json, const ConfigDefaults& defaults);
// Reads an MLP without a gate. If its size is absent and has no default, it is four times the hidden size.
PlainMlpSpec read_plain_mlp(const JsonNode& json, const ConfigDefaults& defaults, int hidden_size);

// Same as make_dense_layers() and read_dense_layers(), with MLPs without a gate.
void make_plain_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);
void read_plain_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec);
// Rejects a flag that is true although attend has no such feature.
void reject_flag(const JsonNode& json, const char* key, std::string_view feature);

// Values of absent fields of a mixture of experts, and names of its fields.
struct MoeDefaults {
  int num_experts = 0;
  int top_k = 0;
  std::string_view top_k_alias = {};      // alternative name if num_experts_per_tok is absent
  const char* num_experts_key = nullptr;  // null: num_experts, or num_local_experts
  std::string_view intermediate_key = "moe_intermediate_size";
  int intermediate_size = 0;  // 0: the field is required
};
// Reads the number of experts, num_experts_per_tok and the size of an expert. Rejects more experts per token
// than experts, numbers above the limits of kernels, and activations other than silu.
MoeMlpSpec read_moe_mlp(const JsonNode& json, const MoeDefaults& defaults);

// Returns for each layer whether layer_types lists it as sliding. Rejects other types, and another number of
// layers.
std::vector<bool> read_layer_types(const JsonNode& types, int num_layers);

// Returns for each layer whether it applies RoPE. no_rope_layers has a 1 for those that do. If it is absent,
// each no_rope_layer_interval-th layer has no RoPE (Llama 4, SmolLM 3).
std::vector<bool> read_rotated_layers(const JsonNode& json, size_t num_layers);

// Sets window_left of the layers in `slides` from sliding_window, or from `missing` if it is absent. If there
// are such layers, rejects null.
void read_windows(const JsonNode& json, const std::vector<bool>& slides, ModelSpec& spec, int missing = 4096);
// Same for the sliding layers of layer_types or, if it is absent, for all except each `full_every`-th.
void read_alternating_windows(const JsonNode& json, int full_every, int missing, ModelSpec& spec);
// Sets a window of `sliding_window` tokens, including the token itself, for the layers in `slides`.
void set_windows(ModelSpec& spec, const std::vector<bool>& slides, int sliding_window);

// Reads windows in the form of the Qwen models: if use_sliding_window is true, sets window_left from
// sliding_window for the sliding layers of layer_types or, if it is absent, for those from max_window_layers
// on.
void read_layer_windows(const JsonNode& json, ModelSpec& spec);

// Calls `change` for each layer's attention or MLP. For properties that all layers share.
void for_each_attention(ModelSpec& spec, const std::function<void(AttentionSpec&)>& change);
void for_each_gated_mlp(ModelSpec& spec, const std::function<void(GatedMlpSpec&)>& change);

}  // namespace attend
