// CallParser: reads the calls of an answer as a ToolFormat describes them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/json_call.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// An answer is text in which openers begin blocks of calls. Missing openers of an element, missing closers,
// and several calls in a block are accepted. An opener that no call follows is text, unless the answer was
// cut off. Spaces next to a call are dropped.
class CallParser final : public AnswerParser {
 public:
  CallParser(const ToolFormat& format, const std::vector<Tool>& tools);

  void push(std::string_view text, AnswerParts& parts) override;
  void finish(AnswerParts& parts, bool complete) override;

 private:
  enum class Place { kStart, kText, kBlock, kName, kBeforeArguments, kArguments, kTags, kObject, kAfterCall };

  // Each returns true if parsing goes on without more text.
  bool read_step(AnswerParts& parts);
  bool read_start();
  bool read_text(AnswerParts& parts);
  bool read_block(AnswerParts& parts);
  bool read_name(AnswerParts& parts);
  bool read_before_arguments(AnswerParts& parts);
  bool read_text_of_object(AnswerParts& parts);
  bool read_first_keyword(AnswerParts& parts);
  bool read_arguments(AnswerParts& parts);
  bool read_tags(AnswerParts& parts);
  bool read_element(AnswerParts& parts);
  bool read_object(AnswerParts& parts);
  bool read_after_call();

  bool end_block(AnswerParts& parts);
  // Emits the name of a call, whose arguments follow in `next`.
  void begin_call(AnswerParts& parts, Place next);
  // Ends a block where a known name is followed by other arguments than an object.
  bool reject_call(AnswerParts& parts);
  // Moves text from the front of `pending_` to `call_raw_`.
  void keep_raw(size_t size);
  void finish_before_arguments(AnswerParts& parts, bool complete);
  void finish_block(const std::string& text, bool complete, AnswerParts& parts) const;
  // Returns the size of the longest marker that the pending text begins with. Sets `may_begin` if the text is
  // the start of a longer one.
  size_t starting_marker(bool& may_begin) const;
  void consume(size_t size);
  bool is_call_next(bool& may_be) const;
  // Writes a parameter's key, after its separator.
  void begin_parameter(std::string_view key, std::string& json);
  void add_parameter(std::string_view key, std::string_view attributes, std::string_view value,
                     AnswerParts& parts);
  void end_tags(AnswerParts& parts);

  const ToolFormat& format_;
  const std::vector<Tool>& tools_;
  Place place_;
  std::string pending_;
  std::string before_;     // spaces before the block
  std::string raw_;        // text of the block before its first call
  std::string call_raw_;   // text of a call that was not emitted yet, from its name on
  size_t name_size_ = 0;   // size of the name and its markers in `call_raw_`
  std::string value_;      // JSON of `literal_` in such a call
  size_t first_size_ = 0;  // size of the opener in `raw_`
  bool has_block_calls_ = false, has_calls_ = false;
  const Tool* tool_ = nullptr;
  int num_parameters_ = 0;
  std::optional<LiteralReader> literal_;
  std::unique_ptr<JsonCallReader> object_;
};

}  // namespace attend::serve
