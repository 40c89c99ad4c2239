// What an answer's text is made of: thoughts, text for the user, calls of tools. Parsers take it in pieces
// and give parts as early as they are sure of them; wherever the text is split, the parts together are the
// same.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attend::serve {

struct AnswerPart {
  enum class Kind {
    kText,       // for the user
    kReasoning,  // thoughts
    kCall,       // a call begins; the text is the tool's name
    kArguments,  // a piece of the JSON of the last call's arguments
  };
  Kind kind = Kind::kText;
  std::string text;

  bool operator==(const AnswerPart&) const = default;
};

// Parts one after another; pieces of the same are joined.
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
  // No more will come: what was held back is given.
  virtual void finish(AnswerParts& parts) = 0;
};

// What was read of a call so far.
enum class CallRead { kMore, kDone, kNoCall };

// All of it is for the user.
std::unique_ptr<AnswerParser> make_text_parser();

}  // namespace attend::serve
