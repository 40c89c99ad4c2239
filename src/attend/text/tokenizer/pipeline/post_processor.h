// Post-processors: the tokens that go before and after a text.
//
// tokenizer.json `post_processor`: TemplateProcessing (the template for a single text), BertProcessing,
// RobertaProcessing, ByteLevel (which changes offsets only), Sequence. Others are refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

class PostProcessor {
 public:
  // Adds nothing.
  PostProcessor() = default;
  // Error(kUnsupported) for a type that attend lacks, Error(kCorruptFile) for a wrong shape.
  explicit PostProcessor(const JsonNode& node);

  // All ids that may be added.
  std::vector<int32_t> added_ids() const;

  // How many tokens a text may have that becomes at most `max_tokens` with what goes around it.
  size_t max_text_tokens(size_t max_tokens) const;

  // The ids of a text with what goes around them.
  std::vector<int32_t> apply(std::vector<int32_t> ids, bool add_special_tokens) const;

 private:
  // A fixed token, or the text.
  using Part = std::optional<int32_t>;
  static constexpr std::nullopt_t kText = std::nullopt;

  void add_template(const JsonNode& node);
  // Puts the parts so far where `parts` has the text.
  void compose(const std::vector<Part>& parts, const JsonNode& node);
  void read(const JsonNode& node, int depth, size_t& num_steps);

  std::vector<Part> parts_{kText};
};

}  // namespace attend::tokenizer
