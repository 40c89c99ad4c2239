// Embedder: texts in, vectors out. What `attend embed` calls, and what a server's /v1/embeddings can.
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
#include "attend/model/model.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Which of a text's hidden states its vector is made of.
enum class Pooling : uint8_t {
  kMean,  // the mean of all tokens'
  kCls,   // the first token's
  kLast,  // the last token's
};
std::string_view to_string(Pooling pooling);
// "mean", "cls" or "last". Throws Error(kInvalidArgument) with these.
Pooling pooling_of(std::string_view name);

struct EmbedderConfig {
  std::filesystem::path model_path;
  LoadFormat load_format = LoadFormat::kAuto;
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
  Resolution resolution;
  int dimensions = 0;  // of a vector
  int max_input_tokens = 0;
  int max_step_tokens = 0, max_step_inputs = 0;  // that are computed together
  Pooling pooling = Pooling::kMean;
  bool normalize = true;
  bool bidirectional = false;  // a token sees those behind it too
  size_t weight_bytes = 0;
};

// The first `dimensions` of a vector, of length 1 again where it was: what models that were trained so
// (Matryoshka, arXiv 2205.13147) make of a shorter vector. 1 <= dimensions <= vector.size().
std::vector<float> shortened(std::vector<float> vector, int dimensions, bool normalize);

// On the CPU. Everything that can be known before weights are read fails before weights are read.
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
    size_t num_left_out = 0;
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
#pragma GCC visibility pop
