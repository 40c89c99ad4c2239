#include "attend/engine/resolve/resolve_embedder.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/output/embedding_files.h"
#include "attend/engine/output/score_prompt.h"
#include "attend/model/loadable_model.h"

namespace attend {
namespace {

constexpr int kMaxInputTokens = 8192;

// Answers of Qwen3-Reranker. The probability of the second one is the score.
constexpr std::string_view kNo = "no", kYes = "yes";

int32_t find_token(const Tokenizer& tokenizer, std::string_view token) {
  const std::optional<int32_t> id = tokenizer.token_id(token);
  if (!id) fail(ErrorCode::kUnsupported, "token \"", token, "\" of the reranker: not in the vocabulary");
  return *id;
}

// Returns the layers of a classification head.
std::vector<EmbeddingDense> head_layers(const ModelSpec& spec, const std::filesystem::path& model_path) {
  std::vector<EmbeddingDense> dense;
  for (const HeadLayer& layer : spec.classifier->layers)
    dense.push_back({.directory = model_path,
                     .in_features = spec.hidden_size,
                     .out_features = spec.hidden_size,
                     .bias = layer.bias,
                     .tanh = layer.tanh,
                     .name = std::string(layer.name)});
  dense.back().out_features = spec.classifier->num_outputs();
  return dense;
}

// Returns the layer that computes the logits of some tokens: rows of the language model's head.
EmbeddingDense token_layer(const ModelSpec& spec, const std::filesystem::path& model_path,
                           std::vector<int32_t> tokens, bool difference) {
  if (spec.final_logit_cap != 0.0f)
    fail(ErrorCode::kUnsupported, spec.architecture,
         " caps its logits: attend supports rerankers without a cap");
  for (const int32_t token : tokens)
    require(token < spec.vocab_size, "token ", token, " of the reranker: the model has ", spec.vocab_size);
  const auto num_tokens = static_cast<int>(tokens.size());
  return {.directory = model_path,
          .in_features = spec.hidden_size,
          .out_features = difference ? 1 : num_tokens,
          .name = head_name(spec, *open_checkpoint(model_path)->open_tensors()),
          .rows = std::move(tokens),
          .num_rows = spec.vocab_size,
          .difference = difference};
}

struct ResolvedHead {
  Classifier classifier;
  std::vector<EmbeddingDense> dense;
};

// Returns the prompt of the model's chat template, or null.
std::shared_ptr<const ScorePrompt> find_prompt(const EmbedderConfig& config) {
  const auto found = ScorePrompt::find(config.model_path);
  return found ? std::make_shared<const ScorePrompt>(*found) : nullptr;
}

// Returns the head of a reranker without a head of its own: its score is the logit of a token.
ResolvedHead resolve_tokens(const EmbedderConfig& config, const ModelSpec& spec,
                            const EmbeddingFiles& files) {
  if (spec.bidirectional())
    fail(ErrorCode::kUnsupported, spec.architecture,
         " attends in both directions: a reranker by tokens is a language model, or a model with a head, "
         "\"...ForSequenceClassification\"");
  ResolvedHead head;
  std::vector<int32_t> tokens;
  bool difference = true;
  if (files.logit_score) {
    if (files.logit_score->false_token) tokens.push_back(*files.logit_score->false_token);
    difference = !tokens.empty();
    tokens.push_back(files.logit_score->true_token);
    head.classifier.labels = {std::string(kYes)};
  } else {
    const Tokenizer tokenizer = Tokenizer::from_path(config.model_path);
    const auto& classifier = spec.classifier;
    const std::vector<std::string> names =
        classifier ? classifier->tokens : std::vector{std::string(kNo), std::string(kYes)};
    for (const std::string& name : names) tokens.push_back(find_token(tokenizer, name));
    difference = !classifier || classifier->token_difference;
    head.classifier.labels = classifier ? classifier->labels : std::vector{std::string(kYes)};
    if (classifier) head.classifier.activation = classifier->activation;
  }
  head.dense = {token_layer(spec, config.model_path, std::move(tokens), difference)};
  head.classifier.prompt = find_prompt(config);
  if (!head.classifier.prompt && spec.architecture.starts_with("Qwen3") && head.classifier.labels.size() == 1)
    head.classifier.prompt = std::make_shared<const ScorePrompt>(ScorePrompt::qwen3());
  return head;
}

// Returns the head of a classification model or reranker, or no value for an embedding model.
std::optional<ResolvedHead> resolve_head(const EmbedderConfig& config, const ModelSpec& spec,
                                         const EmbeddingFiles& files) {
  std::optional<ResolvedHead> head;
  if (spec.final_logit_scale != 1.0f && (spec.classifier || files.logit_score || config.is_reranker))
    fail(ErrorCode::kUnsupported, spec.architecture, " scales its logits: attend supports no head for it");
  if (spec.classifier && spec.classifier->tokens.empty())
    head = {.classifier = {.labels = spec.classifier->labels,
                           .activation = spec.classifier->activation,
                           .prompt = spec.bidirectional() ? nullptr : find_prompt(config)},
            .dense = head_layers(spec, config.model_path)};
  else if (spec.classifier || files.logit_score || config.is_reranker)
    head = resolve_tokens(config, spec, files);
  if (head && files.activation) head->classifier.activation = *files.activation;
  return head;
}

Pooling usual_pooling(const ModelSpec& spec) {
  if (!spec.bidirectional()) return Pooling::kLast;
  return spec.classifier ? Pooling::kCls : Pooling::kMean;
}

}  // namespace

ResolvedEmbedder resolve_embedder(const EmbedderConfig& config) {
  ResolvedEmbedder resolved;
  EmbedderInfo& info = resolved.info;
  const ModelSpec spec = read_config(config.model_path);
  EmbeddingFiles files = read_embedding_files(config.model_path).value_or(EmbeddingFiles{.normalize = true});
  std::optional<ResolvedHead> head = resolve_head(config, spec, files);
  if (head) {
    if (!files.max_tokens) files.max_tokens = read_model_max_length(config.model_path);
    require(!config.normalize.value_or(false), "normalize: ", spec.architecture,
            " returns scores, not vectors");
    files.normalize = false;
    files.dense = std::move(head->dense);
    info.classifier = std::move(head->classifier);
  }

  info.model = spec.architecture;
  info.bidirectional = spec.bidirectional();
  info.num_token_types = spec.num_token_types();
  info.pooling = config.pooling.value_or(files.pooling.value_or(usual_pooling(spec)));
  info.normalize = config.normalize.value_or(files.normalize);
  const int longest = std::min(spec.max_context_len(), kMaxInputTokens);
  require(config.max_input_tokens >= 0 && config.max_input_tokens <= longest, "max_input_tokens ",
          config.max_input_tokens, ": 1 to ", longest, ", or 0 for the model's own limit");
  const int by_files = std::min(files.max_tokens.value_or(longest), longest);
  info.max_input_tokens = config.max_input_tokens > 0 ? config.max_input_tokens : by_files;
  info.dimensions = spec.hidden_size;
  for (const EmbeddingDense& layer : files.dense) {
    if (layer.in_features != info.dimensions)
      fail(ErrorCode::kCorruptFile, (layer.directory / "config.json").string(), ": in_features ",
           layer.in_features, ": expected ", info.dimensions, ", the size of the layer before it");
    info.dimensions = layer.out_features;
  }

  EngineConfig& engine = resolved.engine;
  const DType on_device = config.device.type == DeviceType::kCuda ? spec.dtype : DType::kF32;
  engine.model_path = config.model_path;
  engine.model = spec;
  engine.load_format = config.load_format;
  engine.device = config.device;
  engine.backend_options = config.backend_options;
  engine.dtype = engine.kv_cache_dtype = config.dtype.value_or(on_device);
  engine.context_length = info.max_input_tokens;
  engine.pooling = {.pooling = info.pooling, .dense = files.dense, .normalize = info.normalize};
  return resolved;
}

void add_engine_info(const EngineInfo& engine, EmbedderInfo& info) {
  info.hardware = engine.target().hardware;
  info.dtype = engine.target().dtype;
  info.resolution = engine.target().resolution;
  info.max_step_tokens = engine.limits.max_tokens;
  info.max_step_inputs = engine.limits.max_reqs;
  info.weight_bytes = engine.weight_bytes();
}

}  // namespace attend
