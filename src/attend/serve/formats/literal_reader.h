// LiteralReader: incremental converter of a value that a model wrote to JSON. It reads JSON, Python literals,
// the keyword arguments of a Python call, and Gemma's notation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attend::serve {

// Valid JSON is returned as written. Corrected are: True, False and None, strings in single quotes, keys
// without quotes, tuples, trailing commas, and line breaks, unknown escapes and lone surrogates in strings.
class LiteralReader {
 public:
  enum class Notation {
    kJson,    // JSON or a Python literal
    kCall,    // after "name(": keyword arguments up to ")", which become an object
    kQuoted,  // as kJson, and strings between quotes of their own, which have no escapes
  };
  enum class State { kOpen, kDone, kFailed };

  // `quote`: for kQuoted.
  explicit LiteralReader(Notation notation = Notation::kJson, std::string_view quote = {});

  // Reads bytes up to the end of the value. Returns their number. If the text is not a value, the state is
  // kFailed and the byte that does not fit is not read.
  size_t push(std::string_view text);
  State state() const { return state_; }
  // Returns true once a key and its colon or equals sign were read.
  bool has_key() const { return has_key_; }
  // Returns the JSON that was read since the last call.
  std::string release();
  // Ends the text: returns the JSON that completes the value, or "" if nothing was read.
  std::string close();

 private:
  enum class Place { kValue, kKey, kColon, kAfter, kString, kEscape, kWord, kQuoteOpen, kQuoted };
  enum class Use { kRead, kAgain, kFail };

  Use take(char byte);
  Use begin_value(char byte);
  Use begin_key(char byte);
  Use take_after(char byte);
  Use take_string(char byte);
  Use take_escape(char byte);
  Use take_quote_open(char byte);
  Use take_quoted(char byte);
  void begin_string(char quote);
  void add_string_byte(char byte);
  void add_code_unit(const std::string& digits);
  void replace_lone_surrogate();
  void end_word();
  void end_item();
  Use end_container(char byte);

  Notation notation_;
  std::string_view long_quote_;
  State state_ = State::kOpen;
  Place place_ = Place::kValue;
  std::string out_;
  std::string closers_;    // JSON's closing brackets of the open containers, innermost last
  std::string expected_;   // the brackets that close them in the text
  std::string held_;       // a comma and spaces, omitted before a closing bracket
  std::string word_;       // word, escape or quote that is being read
  std::string surrogate_;  // digits of a high surrogate, whose low one may follow
  char quote_ = '"';
  bool in_key_ = false;
  bool read_any_ = false, has_key_ = false;
};

}  // namespace attend::serve
