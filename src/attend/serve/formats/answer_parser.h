// Parts of an answer's text: reasoning, text for the user, and tool calls. Parsers read the text in pieces
// and emit a part as soon as it is certain. The concatenated parts do not depend on how the text was split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attend::serve {

struct AnswerPart {
  enum class Kind {
    kText,       // for the user
    kReasoning,  // reasoning of the model
    kCall,       // start of a call; the text is the tool's name
    kArguments,  // piece of the JSON arguments of the last call
  };
  Kind kind = Kind::kText;
  std::string text;

  bool operator==(const AnswerPart&) const = default;
};

// List of parts in order. Consecutive pieces of the same kind are joined.
class AnswerParts {
 public:
  void add(AnswerPart::Kind kind, std::string_view text);
  void clear() { parts_.clear(); }
  const std::vector<AnswerPart>& all() const { return parts_; }

 private:
  std::vector<AnswerPart> parts_;
};

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual void push(std::string_view text, AnswerParts& parts) = 0;
  // Ends the text and emits what was held back. If the model ended it, `complete` is true, and a call without
  // closing brackets is completed; a text that was cut off ends with the arguments that were generated.
  virtual void finish(AnswerParts& parts, bool complete) = 0;
};

// Result of reading a call so far.
enum class CallRead { kMore, kDone, kNoCall };

// Returns a parser that treats all text as text for the user.
std::unique_ptr<AnswerParser> make_text_parser();

}  // namespace attend::serve
