// BertModel, RobertaModel and XLMRobertaModel: encoders with bidirectional attention, learned positions,
// LayerNorm after each sublayer and biases in every linear layer. Only classifiers use the pooler. RoBERTa
// numbers positions from the padding token's id + 1.
#include "attend/base/error.h"
#include "attend/model/architectures/architecture.h"

namespace attend {
namespace {

void reject_bert_flag(const JsonNode& json, const char* key) {
  if (json.boolean_or(key, false)) json.at(key).unsupported("true: attend supports only encoders");
}

void read_bert_layers(const JsonNode& json, const ConfigDefaults& defaults, ModelSpec& spec) {
  reject_bert_flag(json, "is_decoder");
  reject_bert_flag(json, "add_cross_attention");
  if (const std::string type = json.find_string("position_embedding_type").value_or("absolute");
      type != "absolute")
    json.at("position_embedding_type").unsupported("\"", type, "\": attend supports absolute");
  AttentionSpec attention = read_attention(json, defaults, spec.hidden_size);
  attention.qkv_bias = attention.output_bias = true;
  attention.rope_set = -1;
  attention.window_right = -1;
  constexpr int kMaxSize = 1 << 30;
  PlainMlpSpec mlp = read_plain_mlp(json, defaults, spec.hidden_size);
  mlp.bias = true;
  const int num_layers = json.find_integer("num_hidden_layers", 1, 1 << 16).value_or(defaults.num_layers);
  spec.layers.assign(static_cast<size_t>(num_layers),
                     {.mixer = attention, .mlp = mlp, .norms = {.before = false, .post_ln = true}});
  spec.final_norm = false;
  spec.learned_positions = {.num_rows = spec.max_position_embeddings,
                            .num_token_types = json.find_integer("type_vocab_size", 1, kMaxSize).value_or(2)};
}

// Numbers positions as create_position_ids_from_input_ids() in transformers does without padding.
void read_roberta_config(const JsonNode& json, ModelSpec& spec) {
  LearnedPositions& positions = *spec.learned_positions;
  positions.first_row = json.find_integer("pad_token_id", 0, 1 << 30).value_or(1) + 1;
  if (positions.first_row >= positions.num_rows)
    json.reject("max_position_embeddings", "more than pad_token_id + 1, the row of the first position");
  spec.max_position_embeddings -= positions.first_row;
}

constexpr DecoderNames kBertNames{.embedding = "embeddings.word_embeddings",
                                  .positions = "embeddings.position_embeddings",
                                  .token_types = "embeddings.token_type_embeddings",
                                  .embedding_norm = "embeddings.LayerNorm",
                                  .layers = "encoder.layer",
                                  .q_proj = "attention.self.query",
                                  .k_proj = "attention.self.key",
                                  .v_proj = "attention.self.value",
                                  .o_proj = "attention.output.dense",
                                  .attention_post_norm = "attention.output.LayerNorm",
                                  .up_proj = "intermediate.dense",
                                  .down_proj = "output.dense",
                                  .mlp_post_norm = "output.LayerNorm"};

constexpr ConfigDefaults bert_defaults(int vocab_size) {
  return {.vocab_size = vocab_size,
          .hidden_size = 768,
          .intermediate_size = 3072,
          .num_layers = 12,
          .num_q_heads = 12,
          .max_position_embeddings = 512,
          .norm_eps = 1e-12,
          .tie_word_embeddings = true,
          .activation = "gelu",
          .keys = {.norm_eps = "layer_norm_eps"},
          .norm_kind = kernels::NormKind::kLayer,
          .norm_biases = true};
}

constexpr WeightPrefix kBertPrefix[] = {{"", "bert."}};
constexpr WeightPrefix kRobertaPrefix[] = {{"", "roberta."}};
constexpr WeightPrefixes kBertPrefixes[] = {kBertPrefix}, kRobertaPrefixes[] = {kRobertaPrefix};

// Heads of classifiers, applied to the first token.
constexpr HeadLayer kBertHead[] = {{.name = "bert.pooler.dense", .tanh = true}, {.name = "classifier"}};
constexpr HeadLayer kRobertaHead[] = {{.name = "classifier.dense", .tanh = true},
                                      {.name = "classifier.out_proj"}};

}  // namespace

constinit const ModelArchitecture kBert{.name = "BertModel",
                                        .models = "MiniLM, bge, e5, gte",
                                        .read_layers = read_bert_layers,
                                        .defaults = bert_defaults(30522),
                                        .names = kBertNames,
                                        .classifier = kBertHead,
                                        .prefixes = kBertPrefixes};

constinit const ModelArchitecture kRoberta{.name = "RobertaModel",
                                           .models = "RoBERTa embedding models",
                                           .read_layers = read_bert_layers,
                                           .read_config = read_roberta_config,
                                           .defaults = bert_defaults(50265),
                                           .names = kBertNames,
                                           .classifier = kRobertaHead,
                                           .prefixes = kRobertaPrefixes};

constinit const ModelArchitecture kXlmRoberta{.name = "XLMRobertaModel",
                                              .models = "multilingual e5, bge-m3",
                                              .read_layers = read_bert_layers,
                                              .read_config = read_roberta_config,
                                              .defaults = bert_defaults(30522),
                                              .names = kBertNames,
                                              .classifier = kRobertaHead,
                                              .prefixes = kRobertaPrefixes};

}  // namespace attend
