// EmbedderInfo: resolved config of an Embedder.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/resolver.h"
#include "attend/engine/output/pooling.h"
#include "attend/model/config/classifier_spec.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

class ScorePrompt;

// Classification model or reranker: the vectors of its engine are logits.
struct Classifier {
  std::vector<std::string> labels;  // [dimensions]
  ScoreActivation activation = ScoreActivation::kSigmoid;
  std::shared_ptr<const ScorePrompt> prompt = {};  // null: pairs are encoded by the tokenizer
};

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

}  // namespace attend
#pragma GCC visibility pop
