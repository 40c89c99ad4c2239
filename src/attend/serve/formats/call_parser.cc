#include "attend/serve/formats/call_parser.h"

#include <algorithm>

#include "attend/serve/formats/held_back.h"
#include "attend/serve/formats/tag_arguments.h"
#include "attend/serve/json/json_text.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;
using Structure = ToolFormat::Structure;
using Arguments = ToolFormat::Arguments;

constexpr size_t kMaxName = 256;
// End of an element without content, instead of `name_close`.
constexpr std::string_view kNameClose = "\">", kSelfClose = "\"/>";

constexpr bool is_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

// Returns true if `text` is a proper prefix of `marker`.
bool may_become(std::string_view text, std::string_view marker) {
  return text.size() < marker.size() && marker.starts_with(text);
}

// First of several markers in a text.
struct Found {
  size_t at = std::string_view::npos;
  std::string_view marker;
};

// If several markers begin at the same place, the first of the list counts.
Found find_first(std::string_view text, std::initializer_list<std::string_view> markers) {
  Found first;
  for (const std::string_view marker : markers) {
    if (marker.empty()) continue;
    if (const size_t at = text.find(marker); at < first.at) first = {at, marker};
  }
  return first;
}

}  // namespace

CallParser::CallParser(const ToolFormat& format, const std::vector<Tool>& tools)
    : format_(format), tools_(tools), place_(format.at_start ? Place::kStart : Place::kText) {}

void CallParser::push(std::string_view text, AnswerParts& parts) {
  pending_ += text;
  while (read_step(parts)) {
  }
}

bool CallParser::read_step(AnswerParts& parts) {
  switch (place_) {
    case Place::kStart:
      return read_start();
    case Place::kText:
      return read_text(parts);
    case Place::kBlock:
      return read_block(parts);
    case Place::kName:
      return read_name(parts);
    case Place::kBeforeArguments:
      return read_before_arguments(parts);
    case Place::kArguments:
      return read_arguments(parts);
    case Place::kTags:
      return format_.arguments == Arguments::kElements ? read_element(parts) : read_tags(parts);
    case Place::kObject:
      return read_object(parts);
    case Place::kAfterCall:
      return read_after_call();
  }
  return false;
}

// A call without an opener is possible at the start of the answer only.
bool CallParser::read_start() {
  const std::string_view text = trim_front(pending_);
  if (text.empty()) return false;
  place_ = Place::kText;
  const bool object = format_.structure == Structure::kObject;
  if (text.front() != '[' && !(object && text.front() == '{')) return true;
  raw_.clear();
  before_ = pending_.substr(0, pending_.size() - text.size());
  pending_.erase(0, before_.size());
  first_size_ = 0;
  has_block_calls_ = false;
  place_ = Place::kBlock;
  return true;
}

bool CallParser::read_text(AnswerParts& parts) {
  size_t open = std::string::npos, size = 0, kept = 0;
  for (const std::string_view marker : format_.opens) {
    const size_t at = pending_.find(marker);
    if (at < open || (at == open && at != std::string::npos && marker.size() > size))
      open = at, size = marker.size();
    if (at == std::string::npos) kept = std::max(kept, num_held_back(pending_, marker));
  }
  // The start of a longer marker may precede the complete marker that was found.
  const bool found = open != std::string::npos;
  const size_t end = found ? open : pending_.size() - kept;
  const size_t text_size = trimmed_size(pending_, end);
  parts.add(Kind::kText, std::string_view(pending_).substr(0, text_size));
  if (!found) {
    pending_.erase(0, text_size);
    return false;
  }
  before_ = pending_.substr(text_size, open - text_size);
  pending_.erase(0, open);
  raw_.clear();
  first_size_ = size;
  has_block_calls_ = false;
  // The marker is read again as part of the block, since it may begin the name.
  place_ = Place::kBlock;
  return true;
}

size_t CallParser::starting_marker(bool& may_begin) const {
  size_t size = 0;
  const auto check = [&](std::string_view marker) {
    if (marker.empty()) return;
    if (pending_.starts_with(marker)) size = std::max(size, marker.size());
    may_begin |= may_become(pending_, marker);
  };
  for (const std::string_view marker : format_.opens) check(marker);
  for (const std::string_view marker : format_.skipped) check(marker);
  check(format_.close);
  check(format_.call_close);
  return size;
}

void CallParser::consume(size_t size) {
  if (!has_block_calls_) raw_ += pending_.substr(0, size);
  pending_.erase(0, size);
}

bool CallParser::is_call_next(bool& may_be) const {
  if (format_.structure == Structure::kObject) return pending_.starts_with('{');
  if (format_.name_open.empty()) return is_in_name(pending_.front());
  may_be = may_become(pending_, format_.name_open);
  return pending_.starts_with(format_.name_open);
}

// Between the calls of a block, spaces, list separators and the format's markers are skipped.
bool CallParser::read_block(AnswerParts& parts) {
  size_t num_spaces = 0;
  while (num_spaces < pending_.size() && is_space(pending_[num_spaces])) ++num_spaces;
  if (num_spaces == pending_.size()) return false;
  consume(num_spaces);
  bool may_be_call = false, may_be_marker = false;
  const bool is_call = is_call_next(may_be_call);
  const size_t marker = starting_marker(may_be_marker);
  if (may_be_call || (may_be_marker && !is_call)) return false;
  if (is_call) {
    if (format_.structure == Structure::kObject) {
      object_ = std::make_unique<JsonCallReader>(tools_);
      place_ = Place::kObject;
    } else {
      place_ = Place::kName;
    }
    return true;
  }
  if (marker > 0) {
    const bool ends = std::string_view(pending_).substr(0, marker) == format_.close;
    if (ends && !has_block_calls_) return end_block(parts);
    consume(marker);
    if (ends) place_ = Place::kText;
    return true;
  }
  // A separator of a list. Before the first call, only the start of a list is possible.
  const char byte = pending_.front();
  if (byte == '[' || (has_block_calls_ && (byte == ',' || byte == ';' || byte == ']'))) {
    consume(1);
    return true;
  }
  return end_block(parts);
}

// Ends a block where text that is not a call follows. A block without calls becomes text.
bool CallParser::end_block(AnswerParts& parts) {
  place_ = Place::kText;
  if (has_block_calls_) return true;
  pending_.insert(0, raw_);
  parts.add(Kind::kText, before_);
  // At least one byte, so that the opener is not found again.
  const size_t size = std::max<size_t>(first_size_, 1);
  parts.add(Kind::kText, std::string_view(pending_).substr(0, size));
  pending_.erase(0, std::min(size, pending_.size()));
  raw_.clear();
  return true;
}

bool CallParser::read_name(AnswerParts& parts) {
  const std::string_view text = std::string_view(pending_).substr(format_.name_open.size());
  // Arguments may begin without the marker that ends the name.
  const bool brace = format_.arguments == Arguments::kJson || format_.arguments == Arguments::kQuoted;
  const std::string_view self_close = format_.name_close == kNameClose ? kSelfClose : "";
  const Found end = find_first(
      text.substr(0, kMaxName),
      {format_.name_close, brace ? "{" : "", format_.tags.key_open, format_.call_close, self_close});
  if (end.marker.empty()) {
    if (text.size() >= kMaxName) return end_block(parts);
    if (!format_.name_open.empty()) return false;
    return std::ranges::all_of(text, is_in_name) ? false : end_block(parts);
  }
  if (format_.name_open.empty() && !std::ranges::all_of(text.substr(0, end.at), is_in_name))
    return end_block(parts);
  std::string_view name = trim_front(text.substr(0, trimmed_size(text, end.at)));
  if (name.starts_with(format_.name_prefix)) name.remove_prefix(format_.name_prefix.size());
  if (!format_.name_cut.empty()) name = name.substr(0, name.find(format_.name_cut));
  tool_ = find_tool(tools_, name);
  if (tool_ == nullptr) return end_block(parts);
  const bool has_no_arguments = !self_close.empty() && end.marker == self_close;
  const bool ends_name = end.marker == format_.name_close || has_no_arguments;
  call_raw_.clear();
  keep_raw(format_.name_open.size() + end.at + (ends_name ? end.marker.size() : 0));
  name_size_ = call_raw_.size();
  value_.clear();
  literal_.reset();
  place_ = Place::kBeforeArguments;
  if (!has_no_arguments) return true;
  begin_call(parts, Place::kAfterCall);
  parts.add(Kind::kArguments, "{}");
  return true;
}

void CallParser::begin_call(AnswerParts& parts, Place next) {
  parts.add(Kind::kCall, tool_->name);
  has_block_calls_ = has_calls_ = true;
  raw_.clear();
  num_parameters_ = 0;
  place_ = next;
}

bool CallParser::reject_call(AnswerParts& parts) {
  pending_.insert(0, call_raw_);
  return end_block(parts);
}

void CallParser::keep_raw(size_t size) {
  call_raw_.append(pending_, 0, size);
  pending_.erase(0, size);
}

// A name is a call if an object of arguments, an element, or the end of the call follows.
bool CallParser::read_before_arguments(AnswerParts& parts) {
  if (format_.arguments == Arguments::kKeyword) return read_first_keyword(parts);
  if (literal_) return read_text_of_object(parts);
  keep_raw(pending_.size() - trim_front(pending_).size());
  if (pending_.empty()) return false;
  for (const std::string_view marker : format_.skipped) {
    if (may_become(pending_, marker)) return false;
    if (!pending_.starts_with(marker)) continue;
    keep_raw(marker.size());
    return true;
  }
  const char first = pending_.front();
  if (first == '{') {
    literal_.emplace(format_.arguments == Arguments::kQuoted ? LiteralReader::Notation::kQuoted
                                                             : LiteralReader::Notation::kJson,
                     format_.quote);
    begin_call(parts, Place::kArguments);
    return true;
  }
  if (format_.arguments == Arguments::kTags || format_.arguments == Arguments::kElements) {
    if (first == '[') return reject_call(parts);
    begin_call(parts, Place::kTags);
    return true;
  }
  if (first == '"' || first == '\'') {
    literal_.emplace();
    return true;
  }
  bool may_be_marker = may_become(pending_, format_.name_open);
  if (starting_marker(may_be_marker) > 0 ||
      (!format_.name_open.empty() && pending_.starts_with(format_.name_open))) {
    if (may_be_marker) return false;
    begin_call(parts, Place::kAfterCall);
    parts.add(Kind::kArguments, "{}");
    return true;
  }
  for (const std::string_view null : {"null", "None"}) {
    may_be_marker |= may_become(pending_, null);
    if (!pending_.starts_with(null)) continue;
    keep_raw(null.size());
    return true;
  }
  return may_be_marker ? false : reject_call(parts);
}

// Some models write the arguments as a string that contains an object.
bool CallParser::read_text_of_object(AnswerParts& parts) {
  keep_raw(literal_->push(pending_));
  value_ += literal_->release();
  if (literal_->state() == LiteralReader::State::kOpen) return false;
  const auto object = literal_->state() == LiteralReader::State::kDone ? to_arguments(value_) : std::nullopt;
  if (!object) return reject_call(parts);
  begin_call(parts, Place::kAfterCall);
  parts.add(Kind::kArguments, *object);
  return true;
}

// Positional arguments have no names, so that they are not an object.
bool CallParser::read_first_keyword(AnswerParts& parts) {
  if (!literal_) literal_.emplace(LiteralReader::Notation::kCall);
  while (!pending_.empty() && literal_->state() == LiteralReader::State::kOpen && !literal_->has_key()) {
    const size_t size = literal_->push(std::string_view(pending_).substr(0, 1));
    keep_raw(size);
    value_ += literal_->release();
  }
  if (literal_->state() == LiteralReader::State::kFailed) return reject_call(parts);
  if (literal_->state() == LiteralReader::State::kOpen && !literal_->has_key()) return false;
  const bool is_done = literal_->state() == LiteralReader::State::kDone;
  begin_call(parts, is_done ? Place::kAfterCall : Place::kArguments);
  parts.add(Kind::kArguments, value_);
  return true;
}

bool CallParser::read_arguments(AnswerParts& parts) {
  const size_t num_read = literal_->push(pending_);
  pending_.erase(0, num_read);
  parts.add(Kind::kArguments, literal_->release());
  if (literal_->state() == LiteralReader::State::kOpen) return false;
  if (literal_->state() == LiteralReader::State::kFailed) parts.add(Kind::kArguments, literal_->close());
  place_ = Place::kAfterCall;
  return true;
}

// Text between parameters is skipped. A value without its closing marker ends where the next element begins.
bool CallParser::read_tags(AnswerParts& parts) {
  const ToolFormat::Tags& tags = format_.tags;
  const std::string_view text = pending_;
  const Found next = find_first(text, {tags.key_open, format_.call_close, format_.close});
  if (next.marker.empty()) return false;
  if (next.marker != tags.key_open) {
    end_tags(parts);
    pending_.erase(0, next.at);
    place_ = Place::kAfterCall;
    return true;
  }
  const size_t key_begin = next.at + tags.key_open.size();
  const size_t key_end = text.find(tags.key_close, key_begin);
  if (key_end == text.npos) return false;
  size_t value_begin = key_end + tags.key_close.size();
  if (!tags.value_open.empty()) {
    std::string_view rest = trim_front(text.substr(value_begin));
    if (!tags.type_open.empty()) {
      if (may_become(rest, tags.type_open)) return false;
      if (rest.starts_with(tags.type_open)) {
        const size_t type_end = rest.find(tags.type_close);
        if (type_end == rest.npos) return false;
        rest = trim_front(rest.substr(type_end + tags.type_close.size()));
      }
    }
    if (may_become(rest, tags.value_open)) return false;
    value_begin = text.size() - rest.size();
    if (rest.starts_with(tags.value_open)) value_begin += tags.value_open.size();
  }
  std::string_view value = text.substr(value_begin);
  std::optional<std::string_view> raw;
  if (!tags.raw_open.empty()) {
    if (may_become(value, tags.raw_open)) return false;
    if (value.starts_with(tags.raw_open)) {
      const size_t raw_end = value.find(tags.raw_close);
      if (raw_end == value.npos) return false;
      raw = value.substr(tags.raw_open.size(), raw_end - tags.raw_open.size());
      value_begin += raw_end + tags.raw_close.size();
      value = text.substr(value_begin);
    }
  }
  const Found end = find_first(value, {tags.value_close, tags.key_open, format_.call_close, format_.close});
  if (end.marker.empty()) return false;
  // The key ends at a quote; attributes may follow.
  const std::string_view key = text.substr(key_begin, key_end - key_begin);
  const size_t quote = key.find('"');
  add_parameter(key.substr(0, quote), quote == key.npos ? "" : key.substr(quote),
                raw.value_or(value.substr(0, end.at)), parts);
  const bool closed = end.marker == tags.value_close;
  pending_.erase(0, value_begin + end.at + (closed ? end.marker.size() : 0));
  return true;
}

// A call ends at its closing marker, where the next one begins, or with its block.
bool CallParser::read_element(AnswerParts& parts) {
  const ToolFormat::Tags& tags = format_.tags;
  const std::string_view text = pending_;
  const Found end = find_first(text, {format_.call_close, format_.close, format_.name_open});
  const size_t at = text.find(tags.key_open);
  if (end.at <= at) {
    if (end.marker.empty()) return false;
    end_tags(parts);
    pending_.erase(0, end.at);
    place_ = Place::kAfterCall;
    return true;
  }
  // The tag may become one of these markers.
  const std::string_view tag = text.substr(at);
  for (const std::string_view marker : {format_.call_close, format_.close, format_.name_open})
    if (may_become(tag, marker)) return false;
  if (tag.starts_with(tags.value_close)) {
    pending_.erase(0, at + tags.value_close.size());
    return true;
  }
  const auto element = first_element(tag, tags, end.at == text.npos ? end.at : end.at - at);
  if (!element) return false;
  std::string json;
  begin_parameter(element->key, json);
  parts.add(Kind::kArguments, json + element_to_json(*element, tags, tool_->parameters));
  pending_.erase(0, at + element->size);
  return true;
}

void CallParser::begin_parameter(std::string_view key, std::string& json) {
  json = num_parameters_++ == 0 ? "{" : ", ";
  append_quoted(key, json);
  json += ": ";
}

void CallParser::add_parameter(std::string_view key, std::string_view attributes, std::string_view value,
                               AnswerParts& parts) {
  // Without a line break before the value, one after it is part of the value.
  if (format_.tags.lines && value.starts_with('\n')) {
    value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
  }
  std::string json;
  begin_parameter(key, json);
  const std::string_view text_mark = format_.tags.text_mark;
  if (!text_mark.empty() && attributes.find(text_mark) != attributes.npos)
    append_quoted(value, json);
  else
    json += tag_value_to_json(value, key, tool_->parameters);
  parts.add(Kind::kArguments, json);
}

void CallParser::end_tags(AnswerParts& parts) {
  parts.add(Kind::kArguments, num_parameters_ == 0 ? "{}" : "}");
}

bool CallParser::read_object(AnswerParts& parts) {
  const CallRead read = object_->read(pending_, parts);
  if (object_->emitted()) has_block_calls_ = has_calls_ = true;
  if (read == CallRead::kMore) return false;
  if (read == CallRead::kNoCall) return end_block(parts);
  place_ = Place::kAfterCall;
  return true;
}

// The closing marker of a call may be missing.
bool CallParser::read_after_call() {
  const std::string_view text = trim_front(pending_);
  if (!format_.call_close.empty() && may_become(text, format_.call_close)) return false;
  if (!format_.call_close.empty() && text.starts_with(format_.call_close))
    pending_ = text.substr(format_.call_close.size());
  place_ = Place::kBlock;
  return true;
}

// A block that ends before its first name is text, or nothing if the answer was cut off after a marker that
// is no word.
void CallParser::finish_block(const std::string& text, bool complete, AnswerParts& parts) const {
  if (has_block_calls_) return;
  const std::string_view opener = trim_front(text).substr(0, first_size_);
  const bool is_cut_call = !complete && opener.find_first_of("<[") != opener.npos;
  if (!is_cut_call) parts.add(Kind::kText, text);
}

// A call whose arguments have not begun has none.
void CallParser::finish_before_arguments(AnswerParts& parts, bool complete) {
  const bool is_keyword = format_.arguments == Arguments::kKeyword;
  std::optional<std::string> object = "{}";
  if (literal_ && !is_keyword) object = to_arguments(value_ + literal_->close());
  const bool has_begun = !trim_front(std::string_view(call_raw_).substr(name_size_)).empty();
  if (complete && is_keyword && has_begun) object.reset();
  if (!object) return finish_block(before_ + raw_ + call_raw_ + pending_, complete, parts);
  begin_call(parts, Place::kAfterCall);
  if (complete) parts.add(Kind::kArguments, *object);
}

void CallParser::finish(AnswerParts& parts, bool complete) {
  switch (place_) {
    case Place::kStart:
      parts.add(Kind::kText, pending_);
      break;
    case Place::kText:
      if (!complete) remove_cut_marker(pending_, format_.opens);
      if (!has_calls_ || !trim_front(pending_).empty()) parts.add(Kind::kText, pending_);
      break;
    case Place::kObject:
      if (object_->finish(complete, parts)) break;
      finish_block(before_ + raw_ + object_->raw() + pending_, complete, parts);
      break;
    case Place::kBlock:
    case Place::kName:
      finish_block(before_ + raw_ + pending_, complete, parts);
      break;
    case Place::kBeforeArguments:
      finish_before_arguments(parts, complete);
      break;
    case Place::kArguments:
      if (complete) parts.add(Kind::kArguments, literal_->close());
      break;
    case Place::kTags:
      if (!complete) break;
      if (format_.arguments == Arguments::kElements) {
        // The last elements may be complete except for their closing tags.
        if (const size_t tag = pending_.rfind(format_.tags.key_open);
            tag != std::string::npos &&
            pending_.find(format_.tags.key_close, tag + format_.tags.key_open.size()) == std::string::npos)
          pending_.resize(tag);
        pending_.resize(pending_.size() - num_held_back(pending_, format_.tags.key_open));
        pending_ += format_.call_close;
        while (place_ == Place::kTags) read_element(parts);
        break;
      }
      // The last value may be complete except for its closing markers.
      if (!format_.tags.raw_open.empty() && pending_.find(format_.tags.raw_open) != std::string::npos &&
          pending_.find(format_.tags.raw_close) == std::string::npos) {
        pending_.resize(pending_.size() - num_held_back(pending_, format_.tags.raw_close));
        pending_ += format_.tags.raw_close;
      }
      pending_.resize(pending_.size() - num_held_back(pending_, format_.tags.value_close));
      if (!pending_.empty()) {
        pending_ += format_.tags.value_close;
        read_tags(parts);
      }
      end_tags(parts);
      break;
    case Place::kAfterCall:
      break;
  }
  pending_.clear();
}

}  // namespace attend::serve
