// Post-processors: add tokens before and after a text.
//
// Supported types of tokenizer.json's `post_processor`: TemplateProcessing (the template for a single text),
// BertProcessing, RobertaProcessing, ByteLevel (which changes only offsets), Sequence. Other types are
// rejected.
#pragma once

#include <cstdint>
#include <optional>
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

 private:
  // Fixed token, or kText for the text.
  using Part = std::optional<int32_t>;
  static constexpr std::nullopt_t kText = std::nullopt;

  void add_template(const JsonNode& node);
  // Replaces each kText of `parts` by the current parts.
  void compose(const std::vector<Part>& parts, const JsonNode& node);
  void read(const JsonNode& node, int depth, size_t& num_steps);

  std::vector<Part> parts_{kText};
};

}  // namespace attend::tokenizer
