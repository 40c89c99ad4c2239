// ModelSpec: what a model computes, layer by layer, as data read from the config.json of a Hugging Face
// model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/attention/attention_layer.h"
#include "attend/kernels/fused/operations.h"
#include "attend/kernels/moe/experts.h"
#include "attend/kernels/norm_rope/rope.h"
#include "attend/kv/cache_spec.h"
#include "attend/model/config/quantization.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Rotary position embedding (arXiv 2104.09864) and its extensions, named as in config.json's rope_scaling.
//
// kDynamic and kLongRope make keys depend on the length of their request's prompt (rope.h), so a cached
// prefix serves another request only when both prompts are within original_max_position_embeddings, or, of
// kLongRope, when both are beyond it.
enum class RopeType : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                                      // linear, dynamic, llama3, yarn, longrope
  int rotary_dim = 0;                                       // even; head_dim unless partial
  bool interleaved = false;                                 // pairs are (2i, 2i + 1), not (i, i + d / 2)
  int original_max_position_embeddings = 0;                 // dynamic, llama3, yarn, longrope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;     // llama3
  double beta_fast = 32.0, beta_slow = 1.0;                 // yarn
  double attention_factor = 0.0;                            // yarn, longrope; 0: what follows from factor
  double mscale = 0.0, mscale_all_dim = 0.0;                // yarn (DeepSeek); 0: not given
  bool truncate = true;                                     // yarn: whole dimensions at the ramp's ends
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: of each pair
};

class Checkpoint;

// What an RMSNorm of q and k takes for one vector.
enum class QkNormSpan : uint8_t {
  kNone,           // there is no such norm
  kHead,           // each head (Qwen3, Gemma 3)
  kToken,          // all heads of a token (OLMo 2)
  kHeadAfterRope,  // each head, without weights and after RoPE (Llama 4)
};

// x += Wo attention(rope(qk_norm(Wq x)), ..): grouped-query attention.
struct AttentionSpec {
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;      // of q k^T
  float logit_cap = 0.0f;  // scores become cap tanh(score / cap); 0: none
  int window_left = -1;    // inclusive; -1: full attention
  int window_right = 0;    // tokens after its own that a token sees; 0: none; -1: all
  int chunk = 0;           // local attention in chunks of so many positions; 0: none
  int rope_set = 0;        // of ModelSpec::ropes; -1: nothing is rotated
  kernels::QueryTemperature temperature = {};
  bool qkv_bias = false;
  bool output_bias = false;
  bool fused_qkv = false;  // one tensor of the checkpoint holds q, k and v, one after another
  bool sinks = false;      // one more logit of each query head in the denominator (AttentionLayer::sinks)
  QkNormSpan qk_norm = QkNormSpan::kNone;
};

// x += Wdown (act(Wgate x) * Wup x).
struct GatedMlpSpec {
  int intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kSilu;
  bool bias = false;
  bool fused_gate_up = false;  // one tensor of the checkpoint holds gate and up, one after the other
};

// x += Wo attention(..) over latent rows: multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section
// 2.1). A head's q and k have a part of nope_dim that is not rotated, then one of rope_dim that is; k's
// rotated part is one of all heads. A token's row of the cache is its latent vector, normalized, and that
// part.
struct MlaSpec {
  int num_heads = 0;
  int q_lora_rank = 0;  // q comes of a normalized vector of so many features; 0: of x itself
  int kv_lora_rank = 0;
  int nope_dim = 0, rope_dim = 0, v_dim = 0;
  float scale = 1.0f;        // of q k^T
  float latent_eps = 1e-6f;  // of the norms of the latent vectors
  int rope_set = 0;          // of ModelSpec::ropes
  bool bias = false;         // of the projections to latent vectors, and of the output
};

// x += Wdown act(Wup x).
struct PlainMlpSpec {
  int intermediate_size = 0;
  kernels::PlainActivation activation = kernels::PlainActivation::kGelu;
  bool bias = false;
};

// x += sum over the top_k experts of each token of weight * Wdown act(Wgate x, Wup x), and of the shared
// expert, which every token meets, weighed by 1.
struct MoeMlpSpec {
  int num_experts = 0;
  int top_k = 0;
  int intermediate_size = 0;  // of one expert
  kernels::RouterRule rule = {};
  bool correction = false;           // the router's choice is corrected by a vector of the checkpoint
  int shared_intermediate_size = 0;  // 0: there is no shared expert
  kernels::ExpertGate gate = {};
  bool weights_scale_input = false;  // weight multiplies what an expert reads, not what it gives (Llama 4)
  bool router_bias = false;
  bool expert_bias = false;
  // One tensor of the checkpoint holds gate and up of all experts, another down of all, input features first.
  bool fused_experts = false;
};

// What mixes tokens and what does not; further kinds of either are further alternatives, each with a module.
using MixerSpec = std::variant<AttentionSpec, MlaSpec>;
using MlpSpec = std::variant<GatedMlpSpec, MoeMlpSpec, PlainMlpSpec>;

// Where a sublayer f has its RMSNorms: x += after(f(before(x))). `of_stream`: x = norm(x + f(x)) in place of
// both, with LayerNorm (BERT).
struct NormPlacement {
  bool before = true;
  bool after = false;
  bool of_stream = false;
};

// Positions that are learned: what enters the stream is the sum of a token's row of the embedding, the row of
// its position and row 0 of a table of token types, normalized by LayerNorm (BERT).
struct LearnedPositions {
  int num_rows = 0;         // of the table of positions
  int first_row = 0;        // of position 0
  int num_token_types = 0;  // rows of that table
};

struct LayerSpec {
  MixerSpec mixer;
  MlpSpec mlp;
  NormPlacement norms = {};  // of either
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"
  int hidden_size = 0;
  int vocab_size = 0;
  int max_position_embeddings = 0;
  float norm_eps = 1e-6f;
  bool zero_centered_norms = false;  // norms multiply by 1 + weight, in float32 (Gemma)
  float embedding_scale = 1.0f;      // of the embedding's rows, where they enter the stream
  bool final_norm = true;            // false: the last layer leaves the stream as it is read
  float final_logit_scale = 1.0f;    // of the logits, before the cap (Granite)
  float final_logit_cap = 0.0f;      // logits become cap tanh(logit / cap); 0: none
  std::vector<LayerSpec> layers;
  std::vector<RopeConfig> ropes;  // sets of rotary embeddings, which layers name
  std::optional<LearnedPositions> learned_positions;
  bool tie_word_embeddings = false;
  DType dtype = DType::kF32;       // of the weights as config.json names it, of those left plain
  Quantization quantization = {};  // of the linear layers' weights
  // Those of config.json, generation_config.json and, in an engine, of the tokenizer's files, in this order.
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
  // Stands for a part of an image, which attend does not read: no prompt may have it.
  std::optional<int32_t> image_token_id;

  int num_layers() const { return static_cast<int>(layers.size()); }
  // Some layer's tokens see those after them: a model of embeddings, which generates nothing.
  bool bidirectional() const;
  // Groups of layers whose cache is allocated together, in the order of their first layers.
  std::vector<CacheSpec> caches() const;
  // Number of layer `layer` among those with K/V: its layer of the KV pool and of geometry().
  int cache_layer(int layer) const;
  // The attention layers, for backends.
  ModelGeometry geometry(DType activation_dtype, DType kv_dtype) const;
  // Tokens of the longest sequence that the position embeddings serve: max_position_embeddings, times what
  // rope scaling stretches it by.
  int max_context_len() const;
  // What the K/V of a request depends on besides its tokens: requests share K/V where this is the same. Empty
  // unless rope is of type dynamic or longrope (rope_config.h).
  std::string kv_salt(int prompt_len) const;
};

// Whether layers with this mixer have K/V: those that have an attention_layer().
bool has_kv(const MixerSpec& mixer);
// Layer `layer_id` of the model's KV pool and backend.
AttentionLayer attention_layer(const AttentionSpec& spec, int layer_id);
// Absorbed: all heads attend to the latent rows.
AttentionLayer attention_layer(const MlaSpec& spec, int layer_id);
// What layer `layer` of the model keeps of each token.
CacheSpec cache_of(const AttentionSpec& spec, int layer);
CacheSpec cache_of(const MlaSpec& spec, int layer);
// Whether attention kernels have its expanded heads: multiples of 8 up to 256.
bool can_expand(const MlaSpec& spec);
// Expanded: each head has keys and values of its own, which are not in the cache.
AttentionLayer expanded_layer(const MlaSpec& spec, int layer_id);

// Reads the config of a checkpoint, and the tokens that its generation_config.json ends with. An absent field
// means what transformers takes it for; a field that attend does not know is ignored. Throws
// Error(kNotFound), Error(kCorruptFile) naming file and field, or Error(kUnsupported) with what attend has.
ModelSpec read_config(const Checkpoint& checkpoint);
// The same of open_checkpoint(path).
ModelSpec read_config(const std::filesystem::path& path);

// The same of a config.json's text; `name` is how errors call it.
ModelSpec parse_config(std::string_view config_json, const std::string& name);

// The architectures that load_model knows: "LlamaForCausalLM", ...
std::vector<std::string> supported_architectures();

// GenerationConfig: how a model's makers sample it, from generation_config.json.
// What the file does not say is not there. Of other fields attend reads the end-of-sequence tokens alone
// (ModelSpec).
struct GenerationConfig {
  bool do_sample = false;  // as transformers: greedy, unless it says true
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;  // 0: all
};

// Everything is absent where the checkpoint has no generation_config.json. Throws Error(kCorruptFile) with
// the field, its value and what was expected.
GenerationConfig read_generation_config(const Checkpoint& checkpoint);
// The same of open_checkpoint(path).
GenerationConfig read_generation_config(const std::filesystem::path& path);

}  // namespace attend
#pragma GCC visibility pop
