// Pooling: how the hidden states of an input become its vector.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

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
Pooling parse_pooling(std::string_view name);

// x = act(W x + b), after the pooling.
struct EmbeddingDense {
  std::filesystem::path directory;  // of its model.safetensors
  int in_features = 0, out_features = 0;
  bool bias = false;
  bool tanh = false;  // the activation; otherwise there is none
};

struct PoolingSpec {
  Pooling pooling = Pooling::kMean;
  std::vector<EmbeddingDense> dense = {};  // in their order
  bool normalize = true;                   // vectors have length 1
};

// The first `dimensions` of a vector, of length 1 again where it was: what models that were trained so
// (Matryoshka, arXiv 2205.13147) make of a shorter vector. 1 <= dimensions <= vector.size().
std::vector<float> truncate_and_normalize(std::vector<float> vector, int dimensions, bool normalize);

// Throws Error(kInvalidArgument) naming the input that is empty, has more than `max_tokens`, or an id that is
// not below `vocab_size`.
void check_inputs(std::span<const std::vector<int32_t>> inputs, int max_tokens, int vocab_size);

}  // namespace attend
#pragma GCC visibility pop
