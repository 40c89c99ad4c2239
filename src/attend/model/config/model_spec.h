// ModelSpec: the computation of a model, layer by layer, as data read from the config.json of a Hugging Face
// model.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kernels/recurrent/recurrent.h"
#include "attend/kv/cache_spec.h"
#include "attend/model/config/classifier_spec.h"
#include "attend/model/config/draft_spec.h"
#include "attend/model/config/quantization.h"
#include "attend/model/config/vision_spec.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Rotary position embedding (arXiv 2104.09864) and its extensions, named as in config.json's rope_scaling.
//
// With kDynamic and kLongRope, keys depend on the length of the request's prompt (rope.h). Another request
// can therefore reuse a cached prefix only if both prompts have at most original_max_position_embeddings
// tokens or, with kLongRope, if both have more.
enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope, kProportional };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                   // all types except default
  int rotary_dim = 0;                                    // even; head_dim unless rotation is partial
  bool interleaved = false;                              // rotates pairs (2i, 2i + 1), not (i, i + d / 2)
  int original_max_position_embeddings = 0;              // dynamic, llama3, yarn, longrope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  double attention_factor = 0.0;                         // yarn, longrope; 0: computed from factor
  double mscale = 0.0, mscale_all_dim = 0.0;             // yarn (DeepSeek); 0: absent
  bool truncate = true;                                  // yarn: rounds the ramp's ends to whole dimensions
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: one per pair
  int num_rotated_pairs = 0;  // proportional: the first pairs; the others have an angle of 0
  // Positions with three axes: axis of each pair, 0 (time), 1 (row) or 2 (column). Empty: one axis. The axes
  // of a text token are equal.
  std::vector<uint8_t> pair_axes = {};
};

class Checkpoint;

// Vector that the RMSNorm of q and k normalizes.
enum class QkNormSpan : uint8_t {
  kNone,                   // no norm of q and k
  kHead,                   // each head (Qwen3, Gemma 3)
  kToken,                  // all heads of a token (OLMo 2)
  kHeadAfterRope,          // each head, without weights and after RoPE (Llama 4)
  kHeadAfterRopeWeighted,  // each head, after RoPE (HunYuan)
  kHeadLayerNorm,          // LayerNorm of each head without biases; heads have rows of weights of their own
                           // (StableLM)
};

// Gate of an attention's output before Wo.
enum class OutputGate : uint8_t {
  kNone,
  kAfterQ,      // q_proj has the gates of a head after its q (Qwen3-Next)
  kPerElement,  // Wg x, one per feature (MuseGlimmer)
  kPerHead,     // Wg x, one per head (Laguna)
};

// Tensors of the checkpoint that hold q, k and v.
enum class QkvStorage : uint8_t {
  kSeparate,  // one tensor each
  kFused,     // one tensor, in this order
  kByKvHead,  // one tensor: for each head of k, its heads of q, then k, then v (GPT-NeoX, Falcon, InternLM 2)
};

// x += Wo attention(rope(qk_norm(Wq x)), ..): grouped-query attention.
struct AttentionSpec {
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int v_dim = 0;                                  // of heads of v; 0: head_dim (MiMo-V2: less)
  float scale = 1.0f;                             // multiplies q k^T
  float input_scale = 1.0f, output_scale = 1.0f;  // factors of the normalized x, and of Wo's input
  float logit_cap = 0.0f;                         // scores become cap tanh(score / cap); 0: none
  int window_left = -1;                           // inclusive; -1: full attention
  int window_right = 0;  // number of later tokens that a token attends to; 0: none; -1: all
  int chunk = 0;         // positions per chunk of local attention; 0: none
  int rope_set = 0;      // index into ModelSpec::ropes; -1: no rotation
  kernels::QueryTemperature temperature = {};
  float qkv_clip = 0.0f;  // q, k and v are clipped to [-qkv_clip, qkv_clip]; 0: they are not (OLMo)
  bool qkv_bias = false;
  bool output_bias = false;
  QkvStorage qkv_storage = QkvStorage::kSeparate;
  OutputGate output_gate = OutputGate::kNone;
  kernels::GateFunction gate_function = kernels::GateFunction::kSigmoid;
  bool sinks = false;  // an additional logit per query head in the denominator (AttentionLayer::sinks)
  QkNormSpan qk_norm = QkNormSpan::kNone;
  // Layer 0 of drafts. False: x is not normalized (EAGLE).
  bool input_norm = true;
  // q, k and v are projected from this number of features, the joined input of a draft
  // (DraftJoin::kAttention), instead of the normalized x; 0: from x.
  int joined_size = 0;
  bool v_norm = false;  // normalizes each head of v without weights (Gemma 4)
  bool k_as_v = false;  // v is Wk x, before the norm and the rotation of k (Gemma 4)
  // Tokens of an image attend to later ones of it (Gemma 3).
  bool bidirectional_items = false;
  // Layer of the model whose K and V this layer attends to; it has no Wk and Wv. -1: its own (Gemma 4).
  int kv_layer = -1;

  int head_dim_v() const { return v_dim > 0 ? v_dim : head_dim; }
  // Heads in the cache: kernels support multiples of 8, so others are padded with zeros.
  bool pads_heads() const { return head_dim % 8 != 0 || head_dim_v() % 8 != 0; }
  int cached_head_dim() const { return (head_dim + 7) / 8 * 8; }
  int cached_head_dim_v() const { return (head_dim_v() + 7) / 8 * 8; }
};

// x += Wdown (act(Wgate x) * Wup x).
struct GatedMlpSpec {
  int intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool bias = false;
  float gate_scale = 1.0f, up_scale = 1.0f;  // factors of Wgate x and Wup x (Falcon-H1)
  bool fused_gate_up = false;                // one tensor of the checkpoint holds gate, then up
};

// Indexer of sparse attention (DeepSeek-V3.2): each query attends to the top_k keys t with the highest
//   sum over index heads h of (Ww x)_h max(0, q_h . k_t), q = rope(Wq c), k = rope(LayerNorm(Wk x))
// where c is the layer's normalized latent vector of q. RoPE has the layer's angles, and rotates the first
// rope_dim dimensions of each head. Checkpoints may be trained with a Hadamard rotation of q and k after
// RoPE; it is orthogonal, so products and thus the selection are those without it.
struct IndexerSpec {
  int top_k = 0;
  bool is_shared = false;  // the layer attends to the keys that the last indexer before it selected
  int num_heads = 0, head_dim = 0;
  bool interleaved_rope = false;  // as in RopeConfig
  float norm_eps = 1e-6f;
};

// x += Wo attention(..) over latent rows: multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section
// 2.1). Each head's q and k consist of nope_dim dimensions without rotation, then rope_dim with rotation. All
// heads share the rotated part of k. A token's cache row is its normalized latent vector, then that part.
struct MlaSpec {
  int num_heads = 0;
  int q_lora_rank = 0;  // features of the normalized vector that q is projected from; 0: from x itself
  int kv_lora_rank = 0;
  int nope_dim = 0, rope_dim = 0, v_dim = 0;
  float scale = 1.0f;        // multiplies q k^T
  float latent_eps = 1e-6f;  // epsilon for the norms of the latent vectors
  int rope_set = 0;          // index into ModelSpec::ropes; -1: no rotation
  kernels::QueryTemperature temperature = {};
  bool bias = false;                        // biases for the projections to latent vectors and for the output
  std::optional<IndexerSpec> indexer = {};  // absent: every query attends to all keys

  bool has_own_indexer() const { return indexer && !indexer->is_shared; }
};

// x += Wo (norm(gated_delta_rule(silu(conv(Wqkv x)), Wb x, Wa x)) silu(Wz x)): gated delta net (arXiv
// 2412.06464), and KDA (arXiv 2510.26692). The norm is per value head, and multiplies by its weights in all
// models.
struct GatedDeltaSpec {
  int num_k_heads = 0, num_v_heads = 0;
  int head_dim_k = 0, head_dim_v = 0;
  int conv_kernel = 4;  // taps
  // Rows of the projections are grouped by key head: one tensor has q, k, v and z of each, another one b and
  // a (Qwen3-Next).
  bool grouped_projections = false;
  bool decays_per_channel = false;  // Wa has an output per channel of k (KDA)
  int gate_rank = 0;                // Wz and Wa are products of two matrices of this rank; 0: one matrix each
  bool sigmoid_gate = false;        // sigmoid(Wz x) instead of silu(Wz x)
  float beta_scale = 1.0f;          // factor of the sigmoid of Wb x
  float norm_eps = 1e-6f;           // epsilon of the norm

  int q_features() const { return num_k_heads * head_dim_k; }
  int v_features() const { return num_v_heads * head_dim_v; }
  int conv_channels() const { return 2 * q_features() + v_features(); }
  // Outputs of Wa.
  int decay_features() const { return decays_per_channel ? num_v_heads * head_dim_k : num_v_heads; }
};

// x += Wo (c conv(b y)) with [b | c | y] = Wi x: gated short convolution (LFM2).
struct ShortConvSpec {
  int kernel = 3;  // taps
  bool bias = false;
};

// x += Wo norm(selective_scan(silu(conv(y))) silu(z)) with [z | y | dt] = Wi x: Mamba-2 (arXiv 2405.21060). y
// is the scan's x, b and c. The norm is per group, and multiplies by its weights in all models.
struct Mamba2Spec {
  int num_heads = 0, head_dim = 0;
  int num_groups = 1, state_dim = 0;
  int conv_kernel = 4;  // taps
  bool conv_bias = true, in_bias = false, out_bias = false;
  kernels::GateOrder gate_order = kernels::GateOrder::kGateFirst;
  float norm_eps = 1e-6f;                         // epsilon of the gated norm
  float input_scale = 1.0f, output_scale = 1.0f;  // factors of the normalized x, and of Wo's input
  std::array<float, 5> scales = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};  // factors of z, of x, b, c in y, and of dt
  float min_step = 0.0f, max_step = std::numeric_limits<float>::infinity();

  int features() const { return num_heads * head_dim; }
  int state_features() const { return num_groups * state_dim; }
  int conv_channels() const { return features() + 2 * state_features(); }
};

// x += attention(x) + mamba(x): both read the same x (Falcon-H1).
struct AttentionMamba2Spec {
  AttentionSpec attention;
  Mamba2Spec mamba;
};

// x += Wdown act(Wup x).
struct PlainMlpSpec {
  int intermediate_size = 0;
  kernels::PlainActivation activation = kernels::PlainActivation::kGelu;
  bool bias = false;
};

// x += sum over each token's top_k experts of weight * Wdown act(Wgate x, Wup x), plus the output of the
// shared expert, which runs for every token with weight 1.
struct MoeMlpSpec {
  int num_experts = 0;
  int top_k = 0;
  int intermediate_size = 0;  // per expert
  kernels::RouterRule rule = {};
  bool correction = false;           // expert choice adds a correction bias of the checkpoint to the scores
  int shared_intermediate_size = 0;  // 0: no shared expert
  // Features of the routed experts' input and output, projected from and to the model's; 0: no projection.
  int latent_size = 0;
  bool shared_gate = false;   // sigmoid(Wg x) with one output multiplies the shared expert's output
  float shared_scale = 1.0f;  // factor of the shared expert's output
  kernels::ExpertGate gate = {};
  bool weights_scale_input = false;  // weight multiplies an expert's input, not its output (Llama 4)
  bool router_bias = false;
  bool correction_row = false;  // the checkpoint stores the correction as [1, num_experts] (ERNIE 4.5)
  // The router's input is normalized with weights of its own, divided by sqrt(hidden_size), and the weight of
  // each expert is multiplied by a factor of the checkpoint (Gemma 4).
  bool router_norm = false;
  bool expert_bias = false;
  // One tensor of the checkpoint holds gate and up of all experts, another one holds down. Inputs are the
  // first axis of each matrix or, with fused_expert_rows, the last one.
  bool fused_experts = false;
  bool fused_expert_rows = false;
};

// x += norm(norm_1(dense(x)) + norm_2(moe(x))): a gated MLP and experts of the same input, each with norms of
// its own around it. The router has a third norm of x (Gemma 4).
struct ParallelMoeSpec {
  GatedMlpSpec dense;
  MoeMlpSpec moe;
};

// Sublayers that mix tokens, and sublayers that process each token by itself. A new kind is a new alternative
// with its own module. std::monostate: the layer has no such sublayer (NemotronH).
using MixerSpec = std::variant<AttentionSpec, MlaSpec, GatedDeltaSpec, ShortConvSpec, Mamba2Spec,
                               AttentionMamba2Spec, std::monostate>;
using MlpSpec = std::variant<GatedMlpSpec, MoeMlpSpec, PlainMlpSpec, ParallelMoeSpec, std::monostate>;

// Positions of the norms around a sublayer f: x += after(f(before(x))). With `post_ln`, a LayerNorm replaces
// both: x = norm(x + f(x)) (BERT).
struct NormPlacement {
  bool before = true;
  bool after = false;
  bool post_ln = false;
  // The MLP reads the stream without the mixer's output: x += mixer(norm(x)) + mlp(norm(x)) (arXiv
  // 2204.02311), with a norm each or, with `shared`, through the mixer's norm.
  bool parallel = false, shared = false;
};

// Learned position embeddings: the residual stream starts as the sum of a token's embedding row and its
// position's row (GPT-2), or as LayerNorm of this sum and its type's row (BERT).
struct LearnedPositions {
  int num_rows = 0;         // rows of the position table
  int first_row = 0;        // row for position 0
  int num_token_types = 0;  // rows of the token type table; 0: no types
  bool norm = true;
};

// Embeddings per layer (Gemma 4): each token has a vector e of `size` features for every layer, computed from
// its embedding row x and a row t of a second table:
//   e = (norm(Wp x / sqrt(hidden_size)) + sqrt(size) t) / sqrt(2)
// After its two sublayers, a layer adds norm(Wo (gelu_tanh(Wg x) * e)) to the residual stream.
struct LayerEmbeddingSpec {
  int vocab_size = 0;  // rows of the table
  int size = 0;        // features per layer
};

struct LayerSpec {
  MixerSpec mixer;
  MlpSpec mlp;
  NormPlacement norms = {};  // for both sublayers
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int hidden_size = 0;
  int vocab_size = 0;
  int max_position_embeddings = 0;
  int extended_positions = 0;  // positions that an engine uses beyond max_context_len(); 0: none
  // Tokens up to which dual chunk attention (arXiv 2402.17463) equals plain attention, which attend computes;
  // 0: the model has no such attention, or fewer positions.
  int dual_chunk_limit = 0;
  float norm_eps = 1e-6f;
  kernels::NormKind norm_kind = kernels::NormKind::kRms;  // of the residual stream
  bool norm_weights = true, norm_biases = false;  // LayerNorm; RMSNorms always have weights and no biases
  bool zero_centered_norms = false;               // norms multiply by 1 + weight, in float32 (Gemma)
  bool plain_final_norm = false;   // the final norm multiplies by its weight nevertheless (MuseGlimmer)
  float post_norm_eps = 0.0f;      // epsilon of norms after sublayers; 0: norm_eps (MuseGlimmer)
  bool embedding_norm = false;     // embedding rows are normalized without weights (MuseGlimmer)
  float embedding_scale = 1.0f;    // multiplies embedding rows before the first layer
  bool final_norm = true;          // false: the last layer's output needs no further norm
  float final_logit_scale = 1.0f;  // multiplies the logits before the cap (Granite)
  float final_logit_cap = 0.0f;    // logits become cap tanh(logit / cap); 0: none
  std::vector<LayerSpec> layers;
  std::vector<RopeConfig> ropes;  // rotary embeddings; layers refer to them by index
  std::optional<LearnedPositions> learned_positions;
  std::optional<LayerEmbeddingSpec> layer_embeddings;
  bool layer_scales = false;  // each layer multiplies its output by a factor of the checkpoint (Gemma 4)
  // Head of a "...ForSequenceClassification". It is applied to pooled hidden states.
  std::optional<ClassifierSpec> classifier;
  // Draft heads: their input. vocab_size and embedding are those of the target's tokens.
  std::optional<DraftSpec> draft;
  bool tie_word_embeddings = false;
  bool head_bias = false;
  bool transposed_linears = false;  // linear layers are stored as [in_features, out_features] (GPT-2)
  DType dtype = DType::kF32;        // dtype in config.json of the weights that are not quantized
  Quantization quantization = {};   // stored format of the linear layers' weights
  // Ids from config.json, generation_config.json and, in an engine, the tokenizer's files, in this order.
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  // Placeholder for a part of an image.
  std::optional<int32_t> image_token_id;
  std::optional<VisionSpec> vision;  // encoder of images; absent: prompts are text only
  std::string no_vision;             // reason why it is absent; empty: the model has none

  int num_layers() const { return static_cast<int>(layers.size()); }
  // Columns of the logits.
  int head_size() const { return draft && draft->head_size > 0 ? draft->head_size : vocab_size; }
  // Returns true if tokens of any layer attend to later tokens: the model computes embeddings and cannot
  // generate.
  bool bidirectional() const;
  // Prompts have no images.
  void drop_bidirectional_items();
  // Returns true if tokens of an image attend to later ones of it in any layer: a step computes all of them.
  bool has_bidirectional_items() const;
  // Returns false if the model only computes vectors or scores.
  bool generates() const { return !bidirectional() && !classifier; }
  // Number of token types that an input may contain; 1: the model has none.
  int num_token_types() const {
    return learned_positions && learned_positions->num_token_types > 0 ? learned_positions->num_token_types
                                                                       : 1;
  }
  // Groups of layers with a common cache allocation, in the order of their first layers.
  std::vector<CacheSpec> caches() const;
  // Layer of the KV pool and of geometry() that layer `layer` attends to: the index of it, or of its
  // kv_layer, among the layers with K/V.
  int cache_layer(int layer) const;
  // Index of layer `layer` among the layers with a recurrent state.
  int state_layer(int layer) const;
  bool has_states() const { return state_layer(num_layers()) > 0; }
  // Attention of all layers that have it, with layers of the KV pool.
  std::vector<AttentionLayer> attention_layers() const;
  // Attention layers with K/V in the form that backends require.
  ModelGeometry geometry(DType activation_dtype, DType kv_dtype) const;
  // Tokens of the longest sequence that the position embeddings support: max_position_embeddings, extended by
  // the factor of rope scaling, or extended_positions; at most dual_chunk_limit.
  int max_context_len() const;
  // Length above which sequences have other frequencies, original_max_position_embeddings of longrope; 0:
  // there is none.
  int longrope_length() const;
  // Prefix cache key for inputs of K/V other than tokens: requests share K/V only if their salts are equal.
  // Empty unless the rope type is dynamic or longrope (rope.h).
  std::string kv_salt(int prompt_len) const;
};

// Returns whether layers with this mixer store K/V: mixers with an attention_layer() do, unless they attend
// to those of another layer.
bool has_kv(const MixerSpec& mixer);
// Returns whether layers with this mixer have a recurrent state: mixers with a state_shape() do.
bool has_state(const MixerSpec& mixer);
// Returns the experts of a layer; null: it has none.
const MoeMlpSpec* find_moe(const MlpSpec& mlp);
MoeMlpSpec* find_moe(MlpSpec& mlp);
// Geometry of layer `layer_id` of the model's KV pool and backend.
AttentionLayer attention_layer(const AttentionSpec& spec, int layer_id);
AttentionLayer attention_layer(const AttentionMamba2Spec& spec, int layer_id);
// Absorbed form: all heads attend to the latent rows.
AttentionLayer attention_layer(const MlaSpec& spec, int layer_id);
// Recurrent state per request.
StateShape state_shape(const GatedDeltaSpec& spec, int hidden_size);
StateShape state_shape(const ShortConvSpec& spec, int hidden_size);
StateShape state_shape(const Mamba2Spec& spec, int hidden_size);
StateShape state_shape(const AttentionMamba2Spec& spec, int hidden_size);
// Cached data per token of the model's layer `layer`.
CacheSpec layer_cache_spec(const AttentionSpec& spec, int layer);
CacheSpec layer_cache_spec(const MlaSpec& spec, int layer);
CacheSpec layer_cache_spec(const AttentionMamba2Spec& spec, int layer);
// Returns whether attention kernels support the expanded head dims: multiples of 8 up to 256.
bool can_expand(const MlaSpec& spec);
// Expanded form: each head has its own keys and values, which are not cached.
AttentionLayer expanded_layer(const MlaSpec& spec, int layer_id);

// Reads the config of a checkpoint and the end-of-sequence tokens of its generation_config.json. Absent
// fields have the defaults of transformers; unknown fields are ignored. Throws Error(kNotFound),
// Error(kCorruptFile) with file and field, or Error(kUnsupported) with the supported values, also for a draft
// head.
ModelSpec read_config(const Checkpoint& checkpoint);
// Same for open_checkpoint(path).
ModelSpec read_config(const std::filesystem::path& path);

// Same for the text of a config.json. Error messages call it `name`.
ModelSpec parse_config(std::string_view config_json, const std::string& name);

// Reads the draft in a checkpoint: a draft head, or the first layer for multi-token prediction of a target's
// own files. Throws as read_config(), and Error(kUnsupported) for a model without such layers. fit_draft()
// completes the result.
ModelSpec read_draft_config(const Checkpoint& checkpoint);
// Same for the text of a config.json. Error messages call it `name`.
ModelSpec parse_draft_config(std::string_view config_json, const std::string& name);

// Architectures that load_model() supports: "LlamaForCausalLM", ...
std::vector<std::string> supported_architectures();
// Published models of such an architecture, for display: "Llama 2, 3.x". Empty for the architecture of a
// draft.
std::string_view published_models(std::string_view architecture);

// GenerationConfig: the sampling parameters that the model's publisher recommends in generation_config.json.
// Fields without an entry in the file are absent. The only other field that attend reads is eos_token_id
// (ModelSpec::eos_token_ids).
struct GenerationConfig {
  bool do_sample = false;  // greedy by default, as in transformers
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;  // 0: all
};

// Returns a config without values if the checkpoint has no generation_config.json. Throws Error(kCorruptFile)
// with the field, its value and the accepted values.
GenerationConfig read_generation_config(const Checkpoint& checkpoint);
// Same for open_checkpoint(path).
GenerationConfig read_generation_config(const std::filesystem::path& path);

}  // namespace attend
#pragma GCC visibility pop
