// Embedder: texts in, vectors out. What `attend embed` calls.
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
  // Of activations and K/V: float32, float16 or bfloat16. Not given: float32 on the CPU (which has no other),
  // what the weights are on a GPU.
  std::optional<DType> dtype = {};
  BackendOptions backend_options = {};
  // Not given: what the sentence-transformers files of the directory say (modules.json); without those the
  // last token of a causal model, the mean of one that attends in both directions, and vectors of length 1.
  std::optional<Pooling> pooling = {};
  std::optional<bool> normalize = {};
  // Of one text, its special tokens among them. 0: what sentence_bert_config.json says, at most what the
  // model's positions reach and 8192.
  int max_input_tokens = 0;
};

// What was resolved from the config.
struct EmbedderInfo {
  std::string model;  // architecture
  Hardware hardware;
  DType dtype = DType::kF32;  // of activations
  Resolution resolution;
  int dimensions = 0;  // of a vector
  int max_input_tokens = 0;
  int max_step_tokens = 0, max_step_inputs = 0;  // that are computed together
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  bool bidirectional = false;  // a token sees those behind it too
  size_t weight_bytes = 0;
};

// An engine that pools, for callers on any thread. Everything that can be known before weights are read fails
// before weights are read.
class Embedder {
 public:
  // Throws Error for a model, option or file that can not be served: see load_model, resolve.
  explicit Embedder(const EmbedderConfig& config, const LoadProgress& progress = {});
  ~Embedder();

  const EmbedderInfo& info() const;

  // The ids of a text, with what the tokenizer puts around it. Throws Error(kUnsupported) without a
  // tokenizer.json, Error(kInvalidArgument) for a text that is longer than max_input_tokens. On any thread.
  std::vector<int32_t> encode(std::string_view text) const;

  // The same of a text of any length: what is too long loses tokens at its end, as sentence-transformers does
  // it.
  struct TruncatedText {
    std::vector<int32_t> ids;
    size_t num_truncated_tokens = 0;
  };
  TruncatedText encode_truncated(std::string_view text) const;

  // Null without a tokenizer.json. May be used from several threads at once.
  const Tokenizer* tokenizer() const;

  // Throws Error(kInvalidArgument) naming the input that is empty, too long, or has an id that the model does
  // not have. On any thread.
  void check(std::span<const std::vector<int32_t>> inputs) const;
  // The vectors of inputs of token ids: [inputs.size()][dimensions]. Inputs are computed together, as many as
  // fit a step; none changes another's. Throws as check(). On any thread; callers wait for one another.
  std::vector<std::vector<float>> embed(std::span<const std::vector<int32_t>> inputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attend
