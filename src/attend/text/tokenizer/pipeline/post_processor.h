// Post-processors: add tokens before and after a text.
//
// Supported types of tokenizer.json's `post_processor`: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (which changes only offsets), Sequence. Other types are rejected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

class PostProcessor {
 public:
  // Adds no tokens.
  PostProcessor() = default;
  // Throws Error(kUnsupported) for an unsupported type, Error(kCorruptFile) for a malformed node.
  explicit PostProcessor(const JsonNode& node);

  // Returns all ids that may be added.
  std::vector<int32_t> added_ids() const;

  // Returns the maximum length of a text that has at most `max_tokens` tokens including the added ones.
  size_t max_text_tokens(size_t max_tokens) const;

  // Returns the ids of a text with the added tokens.
  std::vector<int32_t> apply(std::vector<int32_t> ids, bool add_special_tokens) const;

  // Number of tokens that apply_pair() adds. Throws Error(kUnsupported) without a template for pairs.
  size_t num_added_to_pair() const;
  // Sets the ids of two texts with the added tokens, and the type of each token. Throws Error(kUnsupported)
  // without a template for pairs.
  void apply_pair(std::span<const int32_t> first, std::span<const int32_t> second, std::vector<int32_t>& ids,
                  std::vector<int32_t>& types) const;

 private:
  // Fixed token, or kText for the text.
  using Part = std::optional<int32_t>;
  static constexpr std::nullopt_t kText = std::nullopt;

  // Part of a template for pairs: a fixed token, or text 0 or 1 if `id` is empty.
  struct PairPart {
    Part id;
    size_t text = 0;
    int32_t type = 0;
  };

  void add_template(const JsonNode& node);
  // Reads a template with its special tokens in `node`.
  static std::vector<PairPart> read_pieces(const JsonNode& pieces, const JsonNode& node);
  void set_pair(std::vector<PairPart> parts);
  const std::vector<PairPart>& pair_parts() const;
  // Replaces each kText of `parts` by the current parts.
  void compose(const std::vector<Part>& parts, const JsonNode& node);
  void read(const JsonNode& node, int depth, size_t& num_steps);

  std::vector<Part> parts_{kText};
  std::vector<PairPart> pair_{{.id = kText, .text = 0, .type = 0}, {.id = kText, .text = 1, .type = 1}};
  int num_templates_ = 0;
};

}  // namespace attend::tokenizer
