// Draft heads in folders of their own: EAGLE (arXiv 2401.15077), EAGLE-2 and EAGLE-3 (arXiv 2503.01840).
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

constexpr int kMaxDraftSize = 1 << 30, kMaxStates = 16;

int read_target_size(const JsonNode& json, const ModelSpec& spec) {
  return json.find_integer("target_hidden_size", 1, kMaxDraftSize).value_or(spec.hidden_size);
}

// LlamaForCausalLMEagle3. attention_bias does not apply: published heads have no biases of q, k, v and o.

// Reads a flag at top level or in eagle_config.
bool read_flag(const JsonNode& json, const char* key, bool missing = false) {
  if (const auto flag = json.find_boolean(key)) return *flag;
  const auto eagle = json.find("eagle_config");
  return eagle ? eagle->boolean_or(key, missing) : missing;
}

std::vector<int> read_aux_layers(const JsonNode& json) {
  std::vector<int> ids;
  const auto eagle = json.find("eagle_config");
  const auto field = eagle ? eagle->find("eagle_aux_hidden_state_layer_ids") : std::nullopt;
  for (size_t i = 0; field && i < field->array_size(); ++i) {
    ids.push_back(field->at(i).integer(0, kMaxDraftSize));
    if (i > 0 && ids[i] <= ids[i - 1]) field->reject("layers in ascending order");
  }
  if (ids.size() > kMaxStates) field->reject("at most " + std::to_string(kMaxStates) + " layers");
  return ids;
}

void read_eagle3(const JsonNode& json, ModelSpec& spec) {
  DraftSpec draft{.join = DraftJoin::kAttention, .target_hidden_size = read_target_size(json, spec)};
  draft.reads_stream = read_flag(json, "use_aux_hidden_state", true);
  if (draft.reads_stream) {
    draft.aux_layer_ids = read_aux_layers(json);
    draft.num_hidden = draft.aux_layer_ids.empty() ? 3 : static_cast<int>(draft.aux_layer_ids.size());
  }
  draft.bias = json.boolean_or("bias", false);
  draft.norm_per_state = read_flag(json, "fc_norm") || read_flag(json, "use_aux_norm");
  draft.norm_over_states = read_flag(json, "norm_before_fc");
  if (draft.norm_per_state && draft.norm_over_states)
    fail(ErrorCode::kUnsupported, json.where("norm_before_fc"), " true with fc_norm: expected one of them");
  draft.stream_normed = json.boolean_or("norm_before_residual", false);
  draft.returns_normed = json.boolean_or("norm_output", false);
  draft.head_size = json.find_integer("draft_vocab_size", 1, kMaxDraftSize).value_or(0);
  if (draft.head_size > spec.vocab_size)
    fail(ErrorCode::kCorruptFile, json.where("draft_vocab_size"), " ", draft.head_size,
         ": expected at most vocab_size ", spec.vocab_size);
  std::get<AttentionSpec>(spec.layers.front().mixer).joined_size = 2 * spec.hidden_size;
  spec.draft = std::move(draft);
}

constexpr WeightPrefix kMidLayer[] = {{"layers.0.", "midlayer."}};
constexpr WeightPrefixes kEagle3Prefixes[] = {kMidLayer};

// LlamaForCausalLMEagle, also of EAGLE-2: the first layer and the output have no norm.

void read_eagle(const JsonNode& json, ModelSpec& spec) {
  spec.draft = {.target_hidden_size = read_target_size(json, spec),
                .bias = json.boolean_or("bias", true),
                .input_norms = false};
  spec.final_norm = false;
  std::get<AttentionSpec>(spec.layers.front().mixer).input_norm = false;
}

}  // namespace

constinit const ModelArchitecture kEagle3{.name = "LlamaForCausalLMEagle3",
                                          .read_draft = read_eagle3,
                                          .names = {.embedding = "embed_tokens",
                                                    .layers = "layers",
                                                    .final_norm = "norm",
                                                    .draft_projection = "fc",
                                                    .draft_embedding_norm = ".input_layernorm",
                                                    .draft_hidden_norm = ".hidden_norm",
                                                    .draft_state_norms = "fc_norm",
                                                    .draft_states_norm = "input_norm",
                                                    .draft_tokens = "d2t",
                                                    .scheme = "layers.0.hidden_norm"},
                                          .prefixes = kEagle3Prefixes};

constinit const ModelArchitecture kEagle{
    .name = "LlamaForCausalLMEagle",
    .read_draft = read_eagle,
    .names = {.embedding = "embed_tokens", .layers = "layers", .draft_projection = "fc"}};

}  // namespace attend
