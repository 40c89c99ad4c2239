// ToolFormat: record of how a family of models writes tool calls. CallParser interprets records, and
// tool_grammar() derives grammars from them. A new format is a record in tool_formats.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/grammar/grammar_compiler.h"
#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/json/fields.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

// Tool that a model may call.
struct Tool {
  std::string name;
  Json parameters;      // JSON schema; an empty object if the request has none
  bool strict = false;  // the arguments must follow the schema, also if the model chooses whether it calls
};

// List of texts in a record.
class Texts {
 public:
  static constexpr size_t kMaxTexts = 40;

  constexpr Texts() = default;
  constexpr Texts(std::initializer_list<std::string_view> texts) {
    for (const std::string_view text : texts) texts_.at(size_++) = text;
  }
  constexpr const std::string_view* begin() const { return texts_.data(); }
  constexpr const std::string_view* end() const { return texts_.data() + size_; }
  constexpr std::string_view front() const { return texts_.front(); }

 private:
  std::array<std::string_view, kMaxTexts> texts_;
  size_t size_ = 0;
};

struct ToolFormat {
  enum class Structure {
    kObject,    // a call is a JSON object with name and arguments, one or a list of them
    kNamed,     // the name between two markers, then the arguments
    kChannels,  // gpt-oss: the call is a message, its recipient the tool
  };
  enum class Arguments {
    kJson,      // JSON object
    kTags,      // an element per parameter
    kElements,  // as kTags; the values are elements too, one per member of an object and per item of a list
    kKeyword,   // keyword arguments of a Python call
    kQuoted,    // Gemma 4: {key:<|"|>text<|"|>}, with `quote` around texts
  };
  // Form of the ids of calls in conversations.
  enum class CallIds {
    kAny,
    kNineCharacters,  // nine letters and digits
    kNameAndNumber,   // functions.NAME:NUMBER, counted from 0 in a conversation
  };
  // Elements of a parameter: key_open KEY key_close value_open VALUE value_close. An element between
  // type_open and type_close may precede value_open, and is skipped. A value that begins with raw_open ends
  // at raw_close, and may contain value_close. kElements: key_open KEY key_close CONTENT value_close KEY
  // key_close; key_open and value_close begin with the same special token.
  struct Tags {
    std::string_view key_open = {}, key_close = {}, type_open = {}, type_close = {}, value_open = {},
                     value_close = {}, raw_open = {}, raw_close = {};
    bool lines = false;  // the value is between two line breaks
    // Attributes after the key that mark a text, and JSON; TYPE: its JSON type. Empty: the schema decides.
    std::string_view text_mark = {}, json_mark = {};
    std::string_view between = "\n";  // after each element
    std::string_view grammar = {};    // xgrammar's name of the style; empty: arguments are not restricted
  };
  // Canonical form of an answer with calls: before, calls with `between` them, after. A call: begin, name,
  // middle, arguments, end.
  struct Written {
    std::string_view before = {}, begin = {}, middle = {}, end = {}, between = {}, after = {};
  };

  // For --tool-call-parser: the preferred name first, then other names in SGLang and vLLM.
  Texts names = {};
  std::string_view models = {};  // for the log and the documentation
  Structure structure = Structure::kObject;
  Arguments arguments = Arguments::kJson;
  Written written = {};
  // Markers that begin a block of calls in a text.
  Texts opens = {};
  // Markers that are skipped between the calls of a block.
  Texts skipped = {};
  // Marker that ends a block. If empty, a block ends before text that is not a call.
  std::string_view close = {};
  // kNamed: markers around the name. The part of the name from `name_cut` on is removed, and `name_prefix`.
  std::string_view name_open = {}, name_close = {}, name_prefix = {}, name_cut = {};
  // kNamed: marker after the arguments.
  std::string_view call_close = {};
  Tags tags = {};
  std::string_view quote = "<|\"|>";  // kQuoted
  // Markers around the text for the user, which are not part of it.
  Texts dropped = {};
  CallIds ids = CallIds::kAny;
  // The answer may begin with a call without an opener.
  bool at_start = false;
  // The markers are special tokens, so that they must be part of the decoded text.
  bool special = false;

  std::string_view name() const { return names.front(); }
};

// All formats.
std::span<const ToolFormat> tool_formats();

// Name of SGLang or vLLM for a format that attend does not read.
struct UnsupportedFormat {
  std::string_view name, why;
};
std::span<const UnsupportedFormat> unsupported_tool_formats();
// Returns the format with this name. Throws Error(kUnsupported) with the reason for the name of an
// unsupported format, and Error(kInvalidArgument) that lists all names for other names.
const ToolFormat& parse_tool_format(std::string_view name);
// Returns the parser of a format. `tools` and `format` outlive the parser. A call of an unknown tool is text.
std::unique_ptr<AnswerParser> make_call_parser(const ToolFormat& format, const std::vector<Tool>& tools);

// Returns null if no tool has this name.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// Calls that an answer may or must contain.
struct ToolChoice {
  enum class Kind { kNone, kAuto, kRequired, kNamed };
  Kind kind = Kind::kNone;
  std::string name;      // name of the tool for kNamed
  bool parallel = true;  // allows more than one call
};

// Returns the id of a call as the format's models write it. `given`: the client's id; `number`: of the call
// in the conversation, from 0.
std::string written_call_id(ToolFormat::CallIds form, std::string_view given, std::string_view tool,
                            size_t number);

// Replaces the ids of calls and of their results in the variables of a chat template, a JSON object with
// "messages", by those that the format's models write: templates print them, and some reject others. A result
// belongs to the last call with its id; one without an id, to the first call without a result.
std::string write_call_ids(const ToolFormat& format, const std::string& variables);

// Special tokens of a vocabulary, by their text. Grammars match them only by their ids.
using MarkerTokens = std::vector<std::pair<std::string, int32_t>>;
// Returns the special tokens that the format's markers contain.
MarkerTokens marker_tokens(const ToolFormat& format, const Tokenizer& tokenizer);

// Returns true if a grammar can restrict the calls of a text. `tokens`: see marker_tokens().
bool supports_free_text(const ToolFormat& format, const MarkerTokens& tokens);
// Returns the grammar of answers that must be calls (kRequired, kNamed), or of texts that may contain calls
// (kAuto), in this format.
Grammar tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools, const ToolChoice& choice,
                     const MarkerTokens& tokens = {});
// Returns the grammar of answers that are either calls or JSON that matches `schema`.
Grammar tool_or_json_grammar(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel,
                             const Json& schema, const MarkerTokens& tokens = {});

}  // namespace attend::serve
