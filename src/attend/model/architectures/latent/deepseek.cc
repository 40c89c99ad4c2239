#include "attend/model/architectures/latent/deepseek.h"

#include <cmath>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr int kMaxProduct = 1 << 30, kMaxLatentSize = 1 << 16, kMaxRopeDim = 64;

int read_latent_size(const JsonNode& json, const char* key, int missing, int largest = kMaxLatentSize) {
  return missing == 0 ? json.integer(key, 1, largest) : json.find_integer(key, 1, largest).value_or(missing);
}

// Square of YaRN's attention temperature (arXiv 2309.00071, section 3.4), since DeepSeek multiplies both q
// and k by it. Cosines and sines contain the remaining factor (rope.h).
double yarn_softmax_scale(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn || rope.mscale_all_dim == 0.0 || rope.factor <= 1.0) return 1.0;
  const double temperature = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1.0;
  return temperature * temperature;
}

// Returns the name of a field: the alternative one if the file has it.
const char* field_name(const JsonNode& json, const char* name, const char* alias) {
  return alias != nullptr && json.has(alias) ? alias : name;
}

kernels::RouterGroups read_groups(const JsonNode& json, const DeepseekDefaults& defaults,
                                  const MoeMlpSpec& mlp) {
  const auto read = [&](const char* key, int missing) {
    return json.find_integer(key, 1, kMaxLatentSize).value_or(missing == 0 ? 1 : missing);
  };
  const char* const key = field_name(json, "n_group", defaults.aliases.num_groups);
  const kernels::RouterGroups groups{.num_groups = read(key, defaults.num_groups),
                                     .top_groups = read("topk_group", defaults.top_groups)};
  if (groups.num_groups > kernels::kMaxExpertGroups || mlp.num_experts % groups.num_groups != 0)
    fail(ErrorCode::kCorruptFile, json.where(key), " ", groups.num_groups, ": expected a divisor of ",
         mlp.num_experts, " experts, at most ", kernels::kMaxExpertGroups);
  const int64_t group_size = mlp.num_experts / groups.num_groups;
  if (groups.top_groups > groups.num_groups || groups.top_groups * group_size < mlp.top_k)
    fail(ErrorCode::kCorruptFile, json.where("topk_group"), " ", groups.top_groups, ": expected at most ",
         groups.num_groups, " groups of ", group_size, " experts, with at least num_experts_per_tok ",
         mlp.top_k, " experts in total");
  if (groups.is_limited() && group_size < 2 && mlp.rule.scores == kernels::RouterScores::kSigmoid)
    fail(ErrorCode::kCorruptFile, json.where(key), " ", groups.num_groups,
         ": expected at least two experts per group, since their scores rank the group");
  return groups;
}

}  // namespace

std::vector<bool> read_dense_mlps(const JsonNode& json, size_t num_layers, int missing) {
  std::vector<bool> dense;
  const auto types = json.find("mlp_layer_types");
  if (!types) {
    const auto first =
        static_cast<size_t>(json.find_integer("first_k_dense_replace", 0, kMaxLatentSize).value_or(missing));
    for (size_t i = 0; i < num_layers; ++i) dense.push_back(i < first);
    return dense;
  }
  const std::string expected = "an array of " + std::to_string(num_layers) + " times \"dense\" or \"sparse\"";
  if (!types->value().is_array() || types->value().size() != num_layers) types->reject(expected);
  for (const Json& type : types->value()) {
    dense.push_back(is_string(type, "dense"));
    if (!dense.back() && !is_string(type, "sparse")) types->reject(expected);
  }
  return dense;
}

void set_sparse_mlps(const std::vector<bool>& is_dense, const MoeMlpSpec& experts, ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (!is_dense[i]) spec.layers[i].mlp = experts;
}

MlaSpec read_latent_attention(const JsonNode& json, const DeepseekDefaults& defaults) {
  MlaSpec mla;
  mla.num_heads = read_latent_size(json, "num_attention_heads", defaults.num_heads);
  // If the field is null, q is projected from x. If it is absent, transformers' default applies.
  const bool no_q_latent =
      !json.has("q_lora_rank") && (json.mentions("q_lora_rank") || defaults.q_lora_rank == 0);
  mla.q_lora_rank = no_q_latent ? 0 : read_latent_size(json, "q_lora_rank", defaults.q_lora_rank);
  // The field has no default: it defines latent attention, and every published config has it.
  mla.kv_lora_rank = json.integer("kv_lora_rank", 1, kMaxLatentSize);
  mla.nope_dim = read_latent_size(json, "qk_nope_head_dim", defaults.nope_dim);
  mla.rope_dim = read_latent_size(json, "qk_rope_head_dim", defaults.rope_dim);
  mla.v_dim = read_latent_size(json, "v_head_dim", defaults.v_dim);
  // Backends check the sum of latent and rope dims, not the rope dim, so it is checked here.
  if (mla.rope_dim > kMaxRopeDim)
    fail(ErrorCode::kUnsupported, json.where("qk_rope_head_dim"), " ", mla.rope_dim,
         ": attend supports at most ", kMaxRopeDim);
  if (mla.rope_dim % 2 != 0) json.reject("qk_rope_head_dim", "an even number: pairs are rotated");
  if (int64_t{mla.num_heads} * (mla.nope_dim + mla.rope_dim + mla.v_dim) > kMaxProduct ||
      int64_t{mla.num_heads} * mla.kv_lora_rank > kMaxProduct)
    fail(ErrorCode::kCorruptFile, json.where("num_attention_heads"), " ", mla.num_heads, ": with heads of ",
         mla.nope_dim, " + ", mla.rope_dim, "/", mla.v_dim, " and kv_lora_rank ", mla.kv_lora_rank,
         ": expected products of at most ", kMaxProduct);
  mla.rope_set = -1;
  mla.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(mla.nope_dim + mla.rope_dim)));
  mla.bias = json.boolean_or("attention_bias", false);
  if (mla.bias && mla.q_lora_rank == 0)
    fail(ErrorCode::kUnsupported, json.where("attention_bias"),
         " true with q_lora_rank null: attend supports biases of latent vectors only with q_lora_rank");
  return mla;
}

MoeMlpSpec read_deepseek_experts(const JsonNode& json, const DeepseekDefaults& defaults,
                                 const kernels::RouterRule& rule) {
  const char* const top_k_alias = defaults.aliases.top_k == nullptr ? "" : defaults.aliases.top_k;
  MoeMlpSpec mlp = read_moe_mlp(json, {.num_experts = defaults.num_experts,
                                       .top_k = defaults.top_k,
                                       .top_k_alias = top_k_alias,
                                       .num_experts_key = defaults.num_experts_key,
                                       .intermediate_size = defaults.moe_intermediate_size});
  mlp.rule = rule;
  mlp.rule.scale = static_cast<float>(
      json.find_positive("routed_scaling_factor").value_or(static_cast<double>(defaults.routed_scale)));
  mlp.rule.groups = read_groups(json, defaults, mlp);
  const char* const shared_key = field_name(json, "n_shared_experts", defaults.aliases.num_shared_experts);
  const int num_shared =
      json.find_integer(shared_key, 0, kMaxLatentSize).value_or(defaults.num_shared_experts);
  if (int64_t{num_shared} * mlp.intermediate_size > kMaxProduct)
    fail(ErrorCode::kCorruptFile, json.where(shared_key), " ", num_shared,
         " times moe_intermediate_size: expected at most ", kMaxProduct);
  mlp.shared_intermediate_size = num_shared * mlp.intermediate_size;
  return mlp;
}

void read_latent_layers(const JsonNode& json, const DeepseekDefaults& defaults, ModelSpec& spec) {
  if (json.find_integer("moe_layer_freq", 1, kMaxLatentSize).value_or(1) != 1)
    json.reject("moe_layer_freq", "1: every layer after the dense ones has experts");
  if (json.boolean_or("mlp_bias", false))
    fail(ErrorCode::kUnsupported, json.where("mlp_bias"),
         " true: attend does not support biases in these MLPs");
  MlaSpec mla = read_latent_attention(json, defaults);
  const int q_dim = mla.nope_dim + mla.rope_dim;
  RopeConfig rope = defaults.rope_share_of_head
                        ? read_rope(json, q_dim, spec.max_position_embeddings,
                                    {.partial_rotary_factor = static_cast<double>(mla.rope_dim) / q_dim})
                        : read_rope(json, mla.rope_dim, spec.max_position_embeddings);
  if (rope.rotary_dim != mla.rope_dim)
    fail(ErrorCode::kUnsupported, json.where("qk_rope_head_dim"), " ", mla.rope_dim, ": expected ",
         rope.rotary_dim, ", the rotated dimensions according to partial_rotary_factor");
  rope.interleaved = json.boolean_or("rope_interleave", defaults.interleaved_rope);
  mla.scale = static_cast<float>(yarn_softmax_scale(rope) /
                                 std::sqrt(static_cast<double>(mla.nope_dim + mla.rope_dim)));
  mla.rope_set = 0;
  spec.ropes = {rope};
  const auto num_layers =
      static_cast<size_t>(read_latent_size(json, "num_hidden_layers", defaults.num_layers));
  spec.layers.assign(num_layers, {.mixer = mla, .mlp = GatedMlpSpec()});
}

void read_deepseek_mlps(const JsonNode& json, const DeepseekDefaults& defaults,
                        const kernels::RouterRule& rule, ModelSpec& spec) {
  const std::vector<bool> is_dense = read_dense_mlps(json, spec.layers.size(), defaults.first_dense_layers);
  const GatedMlpSpec dense = read_gated_mlp(json, {.intermediate_size = defaults.intermediate_size});
  for (LayerSpec& layer : spec.layers) layer.mlp = dense;
  set_sparse_mlps(is_dense, read_deepseek_experts(json, defaults, rule), spec);
}

kernels::RouterRule read_corrected_rule(const JsonNode& json, bool normalized, const char* alias) {
  normalized = json.boolean_or(field_name(json, "norm_topk_prob", alias), normalized);
  return {
      .scores = kernels::RouterScores::kSigmoid,
      .weights = normalized ? kernels::RouterWeights::kChosenExperts : kernels::RouterWeights::kAllExperts};
}

void read_corrected_experts(const JsonNode& json, const DeepseekDefaults& defaults, bool normalized,
                            ModelSpec& spec) {
  read_deepseek_mlps(json, defaults, read_corrected_rule(json, normalized, defaults.aliases.normalizes),
                     spec);
  for (LayerSpec& layer : spec.layers)
    if (auto* mlp = std::get_if<MoeMlpSpec>(&layer.mlp)) mlp->correction = true;
}

// DeepseekV2ForCausalLM: V2 and V2-Lite. A softmax over all experts gives their weights. Experts are chosen
// among all, or among the best groups.
namespace {

constexpr DeepseekDefaults kV2Defaults{.num_layers = 32,
                                       .num_heads = 32,
                                       .intermediate_size = 11008,
                                       .q_lora_rank = 1536,
                                       .moe_intermediate_size = 1407,
                                       .num_experts = 64,
                                       .top_k = 0,
                                       .num_shared_experts = 2,
                                       .first_dense_layers = 0,
                                       .num_groups = 0,
                                       .top_groups = 0,
                                       .routed_scale = 1.0f};

void read_v2_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  expect_string(json, "scoring_func", "softmax");
  // DeepSeek's code divides by the sum over the chosen experts, but transformers ignores this field.
  if (json.boolean_or("norm_topk_prob", false))
    fail(ErrorCode::kUnsupported, json.where("norm_topk_prob"),
         " true: attend supports DeepSeek-V2 only without normalized weights");
  const std::string method = json.find_string("topk_method").value_or("greedy");
  if (method != "greedy" && method != "group_limited_greedy")
    fail(ErrorCode::kUnsupported, json.where("topk_method"), " \"", method,
         "\": attend supports greedy, group_limited_greedy");
  read_latent_layers(json, kV2Defaults, spec);
  read_deepseek_mlps(
      json, kV2Defaults,
      {.scores = kernels::RouterScores::kSoftmax, .weights = kernels::RouterWeights::kAllExperts}, spec);
  if (method == "group_limited_greedy") return;
  for (LayerSpec& layer : spec.layers)
    if (auto* mlp = std::get_if<MoeMlpSpec>(&layer.mlp)) mlp->rule.groups = {};
}

}  // namespace

constinit const ModelArchitecture kDeepseekV2{
    .name = "DeepseekV2ForCausalLM",
    .models = "DeepSeek V2, V2-Lite",
    .read_layers = read_v2_layers,
    .defaults = {.vocab_size = 102400, .hidden_size = 4096, .max_position_embeddings = 2048},
    .aux_ids = AuxIds::kOutputsFromFirst};

// DeepseekV3ForCausalLM: V3, R1, Kimi K2, Moonlight. Each expert has a sigmoid score. Experts are chosen
// within the best groups, by score plus a correction bias of the checkpoint. The bias does not change
// weights.
namespace {

constexpr DeepseekDefaults kV3Defaults{.num_layers = 61,
                                       .num_heads = 128,
                                       .intermediate_size = 18432,
                                       .q_lora_rank = 1536,
                                       .moe_intermediate_size = 2048,
                                       .num_experts = 256,
                                       .top_k = 8,
                                       .num_shared_experts = 1,
                                       .first_dense_layers = 3,
                                       .num_groups = 8,
                                       .top_groups = 4,
                                       .routed_scale = 2.5f};

void read_v3_layers(const JsonNode& json, const ConfigDefaults&, ModelSpec& spec) {
  expect_string(json, "scoring_func", "sigmoid");
  expect_string(json, "topk_method", "noaux_tc");
  read_latent_layers(json, kV3Defaults, spec);
  read_corrected_experts(json, kV3Defaults, true, spec);
}

}  // namespace

constinit const ModelArchitecture kDeepseekV3{
    .name = "DeepseekV3ForCausalLM",
    .models = "DeepSeek V3, R1, Kimi K2, Moonlight",
    .read_layers = read_v3_layers,
    .defaults = {.vocab_size = 129280, .hidden_size = 7168, .max_position_embeddings = 4096},
    .predicts_more_tokens = true,
    .prediction = &kDeepseekV3Prediction,
    .aux_ids = AuxIds::kOutputsFromFirst};

// KimiK25ForConditionalGeneration: DeepSeek-V3 as a text model. transformers writes another name.
namespace {

constexpr WeightPrefix kKimiPublished[] = {{"", "language_model."}};
constexpr WeightPrefix kKimiSaved[] = {{"model.", "model.language_model."}};
constexpr WeightPrefixes kKimiPrefixes[] = {kKimiPublished, kKimiSaved};

constexpr ModelArchitecture kimi_k25(std::string_view name) {
  return {.name = name,
          .models = "Kimi K2.5, K2.6 (text)",
          .read_layers = read_v3_layers,
          .defaults = {.vocab_size = 129280,
                       .hidden_size = 7168,
                       .max_position_embeddings = 4096,
                       .tie_word_embeddings = true,
                       .image_token_id = 163605},
          .text_config = TextConfig::kNested,
          .predicts_more_tokens = true,
          .aux_ids = AuxIds::kOutputsFromFirst,
          .prefixes = kKimiPrefixes};
}

}  // namespace

constinit const ModelArchitecture kKimiK25 = kimi_k25("KimiK25ForConditionalGeneration");
constinit const ModelArchitecture kKimiK25Saved = kimi_k25("Kimi_K25ForConditionalGeneration");

}  // namespace attend
