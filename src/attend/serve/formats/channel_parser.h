// ChannelParser: reads gpt-oss's harmony format. An answer is a list of messages with a channel and an
// optional recipient: analysis is reasoning, final is text, and a message to a tool is a call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/literal_reader.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// A message to an unknown recipient, and commentary without a recipient, is text. Text without a header is
// the final message.
class ChannelParser final : public AnswerParser {
 public:
  explicit ChannelParser(const std::vector<Tool>& tools) : tools_(tools) {}

  void push(std::string_view text, AnswerParts& parts) override;
  void finish(AnswerParts& parts, bool complete) override;

 private:
  enum class Place { kHeader, kBody, kArguments, kSkipped };

  bool read_header();
  bool read_body(AnswerParts& parts);
  bool begin_arguments(AnswerParts& parts);
  bool read_arguments(AnswerParts& parts);
  void end_arguments(AnswerParts& parts);
  bool skip_to_header();
  void begin_message(std::string_view header);
  // Returns the place of the marker that ends a message, or the number of bytes that are certain.
  size_t message_end(size_t& marker) const;

  const std::vector<Tool>& tools_;
  Place place_ = Place::kHeader;
  AnswerPart::Kind kind_ = AnswerPart::Kind::kText;
  std::string pending_;
  const Tool* called_ = nullptr;  // of a call whose arguments have not begun
  std::optional<LiteralReader> literal_;
  bool has_arguments_ = false;  // the call has more than spaces as arguments
};

}  // namespace attend::serve
