#include "attend/serve/formats/channel_parser.h"

#include <algorithm>
#include <utility>

#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>",
                           kMessageMark = "<|message|>";
// A message ends at each of these. The header of the next message may begin without <|start|>.
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
// A header begins with one of these.
constexpr std::string_view kHeads[] = {"<|start|>",     "<|channel|>", "<|message|>",
                                       "<|constrain|>", "to=",         "assistant"};
constexpr std::string_view kNamespace = "functions.";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kChannels[] = {"analysis", "commentary", "final"};

// Returns the word after `key`, up to a space or a marker.
std::string_view word_after(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == header.npos) return {};
  header = trim_front(header.substr(at + key.size()));
  return header.substr(0, header.find_first_of(" \n\t\r<"));
}

// Returns the text from the channel's name on, or "" if the header does not begin with a channel. The marker
// of the channel may be missing after the role.
std::string_view channel_part(std::string_view header) {
  if (header.starts_with(kStartMark)) header.remove_prefix(kStartMark.size());
  const bool has_role = header.starts_with(kAssistant);
  if (has_role) header.remove_prefix(kAssistant.size());
  if (header.starts_with(kChannelMark)) return header.substr(kChannelMark.size());
  return has_role ? header : std::string_view();
}

// Returns the name of the channel that the text begins with, or "".
std::string_view leading_channel(std::string_view text) {
  for (const std::string_view channel : kChannels)
    if (text.starts_with(channel)) return text.substr(0, channel.size());
  return {};
}

// Returns the size of a header that ends without <|message|>, directly before the message's text, or 0.
size_t unmarked_header_size(std::string_view header) {
  const std::string_view part = channel_part(header);
  const std::string_view channel = leading_channel(part);
  if (channel.empty() || part.size() == channel.size()) return 0;
  // Other parts of a header follow after a space or as a marker.
  const std::string_view rest = part.substr(channel.size());
  const std::string_view text = trim_front(rest);
  const bool is_header = text.empty() || text.starts_with('<') || rest.starts_with(' ');
  return is_header ? 0 : header.size() - part.size() + channel.size();
}

}  // namespace

void ChannelParser::push(std::string_view text, AnswerParts& parts) {
  pending_ += text;
  for (bool goes_on = true; goes_on;) {
    switch (place_) {
      case Place::kHeader:
        goes_on = read_header();
        break;
      case Place::kBody:
        goes_on = read_body(parts);
        break;
      case Place::kArguments:
        goes_on = read_arguments(parts);
        break;
      case Place::kSkipped:
        goes_on = skip_to_header();
        break;
    }
  }
}

bool ChannelParser::read_header() {
  const std::string_view text = trim_front(pending_);
  if (text.empty()) return false;
  const bool is_header = std::ranges::any_of(
      kHeads, [&](std::string_view head) { return text.starts_with(head) || head.starts_with(text); });
  if (!is_header) {
    kind_ = Kind::kText;
    place_ = Place::kBody;
    return true;
  }
  if (const size_t size = unmarked_header_size(text); size > 0) {
    const std::string header(text.substr(0, size));
    pending_.erase(0, pending_.size() - text.size() + size);
    begin_message(header);
    return true;
  }
  const size_t end = pending_.find(kMessageMark);
  if (end == std::string::npos) return false;
  const std::string header = pending_.substr(0, end);
  pending_.erase(0, end + kMessageMark.size());
  begin_message(header);
  return true;
}

void ChannelParser::begin_message(std::string_view header) {
  std::string_view channel = word_after(header, kChannelMark);
  if (channel.empty()) channel = leading_channel(channel_part(trim_front(header)));
  std::string_view recipient = word_after(header, "to=");
  if (recipient.starts_with(kNamespace)) recipient.remove_prefix(kNamespace.size());
  if (const Tool* tool = find_tool(tools_, recipient); tool && !recipient.empty()) {
    called_ = tool;
    literal_.emplace();
    has_arguments_ = false;
    place_ = Place::kArguments;
    return;
  }
  kind_ = channel == "analysis" ? Kind::kReasoning : Kind::kText;
  place_ = Place::kBody;
}

size_t ChannelParser::message_end(size_t& marker) const {
  size_t at = std::string::npos, kept = 0;
  marker = 0;
  for (const std::string_view end : kEnds) {
    const size_t found = pending_.find(end);
    if (found < at) at = found, marker = end == kStartMark || end == kChannelMark ? 0 : end.size();
    if (found == std::string::npos) kept = std::max(kept, num_held_back(pending_, end));
  }
  return at != std::string::npos ? at : pending_.size() - kept;
}

bool ChannelParser::read_body(AnswerParts& parts) {
  size_t marker = 0;
  const size_t end = message_end(marker);
  const bool ends = std::ranges::any_of(
      kEnds, [&](std::string_view mark) { return std::string_view(pending_).substr(end).starts_with(mark); });
  parts.add(kind_, std::string_view(pending_).substr(0, end));
  pending_.erase(0, end + (ends ? marker : 0));
  if (ends) place_ = Place::kHeader;
  return ends;
}

// A call needs arguments, even if the model wrote none.
void ChannelParser::end_arguments(AnswerParts& parts) {
  const std::string rest = literal_->close();
  parts.add(Kind::kArguments, rest.empty() && !has_arguments_ ? "{}" : rest);
}

// Arguments are an object or missing; a message with another value is text.
bool ChannelParser::begin_arguments(AnswerParts& parts) {
  pending_ = trim_front(pending_);
  if (pending_.empty()) return false;
  size_t marker = 0;
  if (!pending_.starts_with('{')) {
    if (message_end(marker) > 0) {
      called_ = nullptr;
      kind_ = Kind::kText;
      place_ = Place::kBody;
      return true;
    }
    if (!std::ranges::any_of(kEnds, [&](std::string_view mark) { return pending_.starts_with(mark); }))
      return false;
  }
  parts.add(Kind::kCall, std::exchange(called_, nullptr)->name);
  if (!pending_.starts_with('{')) {
    end_arguments(parts);
    place_ = Place::kSkipped;
  }
  return true;
}

bool ChannelParser::read_arguments(AnswerParts& parts) {
  if (called_) return begin_arguments(parts);
  const size_t num_read = literal_->push(pending_);
  has_arguments_ |= !trim_front(pending_.substr(0, num_read)).empty();
  pending_.erase(0, num_read);
  parts.add(Kind::kArguments, literal_->release());
  if (literal_->state() == LiteralReader::State::kOpen) return false;
  if (literal_->state() == LiteralReader::State::kFailed) end_arguments(parts);
  place_ = Place::kSkipped;
  return true;
}

bool ChannelParser::skip_to_header() {
  size_t marker = 0;
  const size_t end = message_end(marker);
  pending_.erase(0, end);
  const bool ends =
      std::ranges::any_of(kEnds, [&](std::string_view mark) { return pending_.starts_with(mark); });
  if (!ends) return false;
  pending_.erase(0, marker);
  place_ = Place::kHeader;
  return true;
}

void ChannelParser::finish(AnswerParts& parts, bool complete) {
  if (place_ == Place::kBody && !complete) remove_cut_marker(pending_, kEnds);
  // An unfinished header is not text, except for words that only resemble one.
  if (place_ == Place::kBody)
    parts.add(kind_, pending_);
  else if (place_ == Place::kHeader && pending_.find("<|") == std::string::npos)
    parts.add(Kind::kText, pending_);
  if (place_ == Place::kArguments && called_) parts.add(Kind::kCall, called_->name);
  if (place_ == Place::kArguments && complete) end_arguments(parts);
  pending_.clear();
}

}  // namespace attend::serve
