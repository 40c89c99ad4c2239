#include "attend/engine/output/scoring.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/base/error.h"
#include "attend/engine/output/score_prompt.h"

namespace attend {
namespace {

float sigmoid(float logit) { return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logit)))); }

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

float cosine(const std::vector<float>& a, const std::vector<float>& b) {
  // Zero vectors have similarity 0, as in torch's cosine_similarity().
  return static_cast<float>(dot(a, b) / std::max(std::sqrt(dot(a, a)) * std::sqrt(dot(b, b)), 1e-12));
}

std::vector<int32_t> encode_text(const Tokenizer& tokenizer, const std::string& text, int max_tokens) {
  return max_tokens > 0 ? tokenizer.encode_truncated(text, static_cast<size_t>(max_tokens))
                        : tokenizer.encode(text);
}

// Returns the text of the first `max_tokens` tokens.
std::string truncated_text(const Tokenizer& tokenizer, const std::string& text, int max_tokens) {
  std::vector<int32_t> ids = tokenizer.encode(text, false);
  if (max_tokens == 0 || std::ssize(ids) <= max_tokens) return text;
  ids.resize(static_cast<size_t>(max_tokens));
  return tokenizer.decode_prefix(ids);
}

ScoreInputs encode_separately(const Tokenizer& tokenizer, std::span<const std::string> firsts,
                              std::span<const std::string> seconds, const PairOptions& options) {
  ScoreInputs inputs;
  for (const std::string& text : firsts)
    inputs.ids.push_back(encode_text(tokenizer, text, options.max_tokens));
  int limit = options.max_tokens;
  if (options.max_second_tokens > 0)
    limit = limit > 0 ? std::min(limit, options.max_second_tokens) : options.max_second_tokens;
  for (size_t i = 0; i < seconds.size(); ++i) {
    inputs.ids.push_back(encode_text(tokenizer, seconds[i], limit));
    inputs.pairs.emplace_back(firsts.size() == 1 ? 0 : i, firsts.size() + i);
  }
  return inputs;
}

}  // namespace

ScoreInputs encode_pairs(const EmbedderInfo& info, const Tokenizer& tokenizer,
                         std::span<const std::string> firsts, std::span<const std::string> seconds,
                         const PairOptions& options) {
  require(!seconds.empty() && (firsts.size() == 1 || firsts.size() == seconds.size()), firsts.size(),
          " first and ", seconds.size(), " second texts: expected 1 and n, or n and n, with n at least 1");
  const auto& classifier = info.classifier;
  if (!options.instruction.empty() && (!classifier || !classifier->prompt))
    fail(ErrorCode::kUnsupported, "instruction: ", info.model, " has no prompt with an instruction");
  if (!classifier) return encode_separately(tokenizer, firsts, seconds, options);
  if (classifier->labels.size() != 1)
    fail(ErrorCode::kUnsupported, info.model, " classifies a text by ", classifier->labels.size(),
         " labels: scores of pairs need a model with one label, or an embedding model");
  ScoreInputs inputs;
  const auto max_tokens = static_cast<size_t>(options.max_tokens);
  for (size_t i = 0; i < seconds.size(); ++i) {
    const std::string& first = firsts[firsts.size() == 1 ? 0 : i];
    inputs.pairs.emplace_back(i, i);
    if (classifier->prompt) {
      const std::string second = truncated_text(tokenizer, seconds[i], options.max_second_tokens);
      inputs.ids.push_back(
          classifier->prompt->encode(tokenizer, first, second, options.instruction, max_tokens));
      continue;
    }
    Tokenizer::EncodedPair pair = tokenizer.encode_pair(
        first, seconds[i],
        {.max_tokens = max_tokens, .max_second_tokens = static_cast<size_t>(options.max_second_tokens)});
    inputs.ids.push_back(std::move(pair.ids));
    if (info.num_token_types > 1) inputs.token_types.push_back(std::move(pair.types));
  }
  return inputs;
}

std::vector<float> pair_scores(const EmbedderInfo& info, const ScoreInputs& inputs,
                               std::span<const std::vector<float>> vectors, bool activate_logits) {
  std::vector<float> scores;
  scores.reserve(inputs.pairs.size());
  for (const auto& [first, second] : inputs.pairs) {
    if (!info.classifier)
      scores.push_back(cosine(vectors[first], vectors[second]));
    else
      scores.push_back(activate_logits ? activate(vectors[first], info.classifier->activation).front()
                                       : vectors[first].front());
  }
  return scores;
}

std::vector<float> activate(std::vector<float> logits, ScoreActivation activation) {
  if (activation == ScoreActivation::kSigmoid) {
    std::ranges::transform(logits, logits.begin(), sigmoid);
  } else if (activation == ScoreActivation::kSoftmax && !logits.empty()) {
    const float largest = *std::ranges::max_element(logits);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
    for (float& logit : logits)
      logit = static_cast<float>(std::exp(static_cast<double>(logit - largest)) / sum);
  }
  return logits;
}

}  // namespace attend
