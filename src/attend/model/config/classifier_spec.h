// ClassifierSpec: head of a classification model or a reranker, as data read from config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Function from a classifier's logits to the scores that it returns.
enum class ScoreActivation : uint8_t {
  kIdentity,
  kSigmoid,  // of each logit
  kSoftmax,  // over all logits
};
std::string_view to_string(ScoreActivation activation);

// Dense layer of a classification head: tensors "<name>.weight" and, with a bias, "<name>.bias".
struct HeadLayer {
  std::string_view name;  // full name in the checkpoint
  bool bias = true;
  bool tanh = false;  // activation is tanh; false: no activation
};

struct ClassifierSpec {
  std::vector<HeadLayer> layers;    // the last one returns the logits, the others hidden_size features
  std::vector<std::string> labels;  // [outputs]
  ScoreActivation activation = ScoreActivation::kSigmoid;
  // Instead of `layers`: the logits are those of the model's head for these tokens, or the difference of the
  // second and the first one (vLLM's classifier_from_token and is_original_qwen3_reranker).
  std::vector<std::string> tokens;
  bool token_difference = false;

  int num_outputs() const { return static_cast<int>(labels.size()); }
};

}  // namespace attend
#pragma GCC visibility pop
