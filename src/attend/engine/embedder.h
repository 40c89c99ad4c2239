// Embedder: encodes texts and pools them into vectors or scores. `attend embed` calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/engine/output/pooling.h"
#include "attend/model/config/classifier_spec.h"
#include "attend/model/model.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

class ScorePrompt;

struct EmbedderConfig {
  std::filesystem::path model_path;
  LoadFormat load_format = LoadFormat::kAuto;
  Device device = {};
  // Dtype of activations and K/V: float32, float16 or bfloat16. Not given: float32 on CPUs (the only one
  // there), the dtype of the weights on GPUs.
  std::optional<DType> dtype = {};
  BackendOptions backend_options = {};
  // Not given: the values of the directory's sentence-transformers files (modules.json). Without these files:
  // the last token of a causal model, the mean of a bidirectional one, and vectors normalized to length 1.
  std::optional<Pooling> pooling = {};
  std::optional<bool> normalize = {};
  // Maximum number of tokens of one text, including special tokens. 0: the value of
  // sentence_bert_config.json, limited by the model's maximum position and 8192.
  int max_input_tokens = 0;
  // The model is a language model, and the probability of its answer "yes" is the score of a pair
  // (Qwen3-Reranker). Not needed if its files describe the score: config.json's classifier_from_token, or a
  // LogitScore module of sentence-transformers.
  bool is_reranker = false;
};

// Classification model or reranker: the vectors of its engine are logits.
struct Classifier {
  std::vector<std::string> labels;  // [dimensions]
  ScoreActivation activation = ScoreActivation::kSigmoid;
  std::shared_ptr<const ScorePrompt> prompt = {};  // null: pairs are encoded by the tokenizer
};

// Resolved config of an Embedder.
struct EmbedderInfo {
  std::string model;  // architecture
  Hardware hardware;
  DType dtype = DType::kF32;  // of activations
  Resolution resolution;
  int dimensions = 0;  // length of a vector
  int max_input_tokens = 0;
  int max_step_tokens = 0, max_step_inputs = 0;  // limits of one step
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  bool bidirectional = false;  // tokens attend to later ones
  int num_token_types = 1;     // 1: token types have no effect
  std::optional<Classifier> classifier = {};
  size_t weight_bytes = 0;
};

struct PairOptions {
  // Maximum tokens of a pair, or of each text with an embedding model. The longer text is truncated, both if
  // both are long, and only the document of a prompt. 0: no truncation.
  int max_tokens = 0;
  int max_second_tokens = 0;     // maximum tokens of the second text, which is truncated; 0: no limit
  std::string instruction = {};  // describes the task to models with a prompt; empty: the prompt's default
};

// Pooling engine for callers on any thread. All checks that do not depend on weights happen before weights
// are loaded.
class Embedder {
 public:
  // Throws Error for a model, option or file that is not supported: see load_model, resolve.
  explicit Embedder(const EmbedderConfig& config, const LoadProgress& progress = {});
  ~Embedder();

  const EmbedderInfo& info() const;

  // Returns the ids of a text, including the tokenizer's special tokens. Throws Error(kUnsupported) without a
  // tokenizer.json, Error(kInvalidArgument) for a text longer than max_input_tokens. Thread-safe.
  std::vector<int32_t> encode(std::string_view text) const;

  // The same for a text of any length: a too long one is truncated at its end, as in sentence-transformers.
  struct TruncatedText {
    std::vector<int32_t> ids;
    bool is_truncated = false;
  };
  TruncatedText encode_truncated(std::string_view text) const;

  // Null without a tokenizer.json. Thread-safe.
  const Tokenizer* tokenizer() const;

  // Throws Error(kInvalidArgument) with the index of an input that is empty, too long, or contains an id
  // outside of the vocabulary. Thread-safe.
  void check(std::span<const std::vector<int32_t>> inputs) const;
  // Returns the vectors of inputs of token ids: [inputs.size()][dimensions], or the logits of a classifier.
  // `token_types`: PoolingRequest::token_types. Each step computes the number of inputs that fits; results do
  // not depend on other inputs. Throws like check(). Thread-safe; concurrent calls run one after another.
  std::vector<std::vector<float>> embed(std::span<const std::vector<int32_t>> inputs,
                                        std::span<const std::vector<int32_t>> token_types = {});

  // Returns the scores of pairs of texts: see encode_pairs() and pair_scores(). Throws what encode_pairs()
  // and check() throw, and Error(kUnsupported) without a tokenizer.json.
  std::vector<float> score(std::span<const std::string> firsts, std::span<const std::string> seconds,
                           const PairOptions& options = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend
#pragma GCC visibility pop
