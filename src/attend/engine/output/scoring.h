// Scores of pairs of texts (a query and a document), and probabilities of labels, from the vectors of a
// pooling engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attend/engine/embedder.h"
#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Inputs of a pooling engine that give the scores of pairs.
struct ScoreInputs {
  std::vector<std::vector<int32_t>> ids;          // per input
  std::vector<std::vector<int32_t>> token_types;  // PoolingRequest::token_types
  // Two inputs per pair for an embedding model; an index may repeat. For a classifier, both are the pair's
  // only input.
  std::vector<std::pair<size_t, size_t>> pairs;
};

// Encodes pairs (firsts[i], seconds[i]); one first text makes a pair with each second text. Throws
// Error(kUnsupported) for a classifier with several labels, which are not scores, and for an instruction to a
// model without a prompt, Error(kInvalidArgument) for other numbers of texts. Does not check the length of
// the inputs.
ScoreInputs encode_pairs(const EmbedderInfo& info, const Tokenizer& tokenizer,
                         std::span<const std::string> firsts, std::span<const std::string> seconds,
                         const PairOptions& options);

// Returns the score of each pair: a classifier's logit, with its activation if `activate`, or the cosine
// similarity of two vectors.
std::vector<float> pair_scores(const EmbedderInfo& info, const ScoreInputs& inputs,
                               std::span<const std::vector<float>> vectors, bool activate = true);

// Returns the scores of labels from logits.
std::vector<float> activate(std::vector<float> logits, ScoreActivation activation);

}  // namespace attend
#pragma GCC visibility pop
