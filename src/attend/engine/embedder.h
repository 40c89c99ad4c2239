// Embedder: encodes texts and pools them into vectors. `attend embed` calls it.
#pragma once

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
#include "attend/model/model.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

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
};

// Resolved config.
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
  size_t weight_bytes = 0;
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
    size_t num_truncated_tokens = 0;
  };
  TruncatedText encode_truncated(std::string_view text) const;

  // Null without a tokenizer.json. Thread-safe.
  const Tokenizer* tokenizer() const;

  // Throws Error(kInvalidArgument) with the index of an input that is empty, too long, or contains an id
  // outside of the vocabulary. Thread-safe.
  void check(std::span<const std::vector<int32_t>> inputs) const;
  // Returns the vectors of inputs of token ids: [inputs.size()][dimensions]. Each step computes the number of
  // inputs that fits; results do not depend on other inputs. Throws like check(). Thread-safe; concurrent
  // calls run one after another.
  std::vector<std::vector<float>> embed(std::span<const std::vector<int32_t>> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend
