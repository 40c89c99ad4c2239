// Pooling: reduction of an input's hidden states to a vector.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// Tokens of an input that its vector is computed from.
enum class Pooling : uint8_t {
  kMean,  // mean of all tokens
  kCls,   // first token
  kLast,  // last token
};
std::string_view to_string(Pooling pooling);
// Parses "mean", "cls" or "last". Throws Error(kInvalidArgument) for other names.
Pooling parse_pooling(std::string_view name);

// Dense layer after the pooling: x = act(W x + b).
struct EmbeddingDense {
  std::filesystem::path directory;  // contains its model.safetensors
  int in_features = 0, out_features = 0;
  bool bias = false;
  bool tanh = false;            // activation is tanh; false: no activation
  std::string name = "linear";  // tensors "<name>.weight" and "<name>.bias"
  // Rows of `name` that are the outputs: [out_features] token ids of a language model's head. With
  // `difference`, the only output is the last row minus the first one. Empty: all rows.
  std::vector<int32_t> rows = {};
  int num_rows = 0;  // of `name`, if `rows` is not empty
  bool difference = false;
};

struct PoolingSpec {
  Pooling pooling = Pooling::kMean;
  std::vector<EmbeddingDense> dense = {};  // in order of application
  bool normalize = true;                   // vectors have length 1
};

// Returns the first `dimensions` elements of a vector, scaled to length 1 if `normalize` is set, for models
// with Matryoshka training (arXiv 2205.13147). 1 <= dimensions <= vector.size().
std::vector<float> truncate_and_normalize(std::vector<float> vector, int dimensions, bool normalize);

// Throws Error(kInvalidArgument) naming the input if it is empty, has more than `max_tokens` tokens, or has a
// token id outside [0, vocab_size).
void check_inputs(std::span<const std::vector<int32_t>> inputs, int max_tokens, int vocab_size);
// Throws Error(kInvalidArgument) naming the input if `types` is neither empty nor a list per input that is
// empty or has a type of [0, num_types) for each token.
void check_token_types(std::span<const std::vector<int32_t>> types,
                       std::span<const std::vector<int32_t>> inputs, int num_types);

}  // namespace attend
#pragma GCC visibility pop
