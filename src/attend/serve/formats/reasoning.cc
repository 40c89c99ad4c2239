#include "attend/serve/formats/reasoning.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/serve/formats/held_back.h"

namespace attend::serve {
namespace {

using Kind = AnswerPart::Kind;

class ReasoningParser final : public AnswerParser {
 public:
  ReasoningParser(const ReasoningFormat& format, bool inside,
                  std::function<std::unique_ptr<AnswerParser>()> make_rest, const Texts& call_opens)
      : format_(format),
        inside_(inside),
        make_rest_(std::move(make_rest)),
        call_opens_(call_opens),
        rest_(make_rest_()) {}

  void push(std::string_view text, AnswerParts& parts) override {
    if (place_ == Place::kAfter && !after_tag_) return push_rest(text, parts);
    pending_ += text;
    if (place_ == Place::kStart) begin();
    while (place_ == Place::kInside && read_reasoning(parts)) {
    }
    if (place_ == Place::kAfter) go_on(parts);
  }

  void finish(AnswerParts& parts, bool complete) override {
    if (place_ == Place::kInside && finish_trial(parts, complete)) return;
    if (!complete) remove_cut_tag();
    if (place_ == Place::kInside || (place_ == Place::kStart && inside_))
      parts.add(Kind::kReasoning, pending_);
    else if (!pending_.empty() && !after_tag_)
      rest_->push(pending_, parts);
    pending_.clear();
    AnswerParts rest;
    rest_->finish(rest, complete);
    for (const AnswerPart& part : rest.all()) add_rest(part, parts);
    if (!complete) remove_cut_marker(held_text_, std::array{format_.close});
    parts.add(Kind::kText, held_text_);
  }

 private:
  enum class Place { kStart, kInside, kAfter };
  // Closing tag after a call within the reasoning; kRead: only spaces have followed it.
  enum class Tag { kNone, kAwaited, kRead };

  // If the prompt opened the tag, the model may repeat the opening tag. A closing tag without an opening one
  // begins an answer without reasoning.
  void begin() {
    const std::string_view text = trim_front(pending_);
    const std::string_view open = format_.open, close = format_.close;
    if (text.starts_with(open)) {
      pending_ = text.substr(open.size());
      place_ = Place::kInside;
    } else if (!inside_ && text.starts_with(close)) {
      pending_ = text.substr(close.size());
      place_ = Place::kAfter;
      after_tag_ = true;
    } else if (!open.starts_with(text) && (inside_ || !close.starts_with(text))) {
      place_ = inside_ ? Place::kInside : Place::kAfter;
    }
  }

  // Returns true if parsing goes on without more text.
  bool read_reasoning(AnswerParts& parts) {
    if (!has_content_) {
      pending_ = trim_front(pending_);
      has_content_ = !pending_.empty();
    }
    const size_t close = pending_.find(format_.close);
    size_t end =
        close != std::string::npos ? close : pending_.size() - num_held_back(pending_, format_.close);
    const size_t call = find_call_open(end);
    if (call < end) return try_call(call, parts);
    const size_t size = trimmed_size(pending_, end);
    add_reasoning(size, parts);
    if (close == std::string::npos || end < close) return false;
    pending_.erase(0, pending_.find(format_.close) + format_.close.size());
    place_ = Place::kAfter;
    after_tag_ = true;
    return false;
  }

  void add_reasoning(size_t size, AnswerParts& parts) {
    const std::string_view text = std::string_view(pending_).substr(0, size);
    parts.add(Kind::kReasoning, text);
    if (const size_t content = text.find_last_not_of(" \t\r"); content != text.npos)
      begins_line_ = text[content] == '\n';
    pending_.erase(0, size);
  }

  bool begins_line(size_t at) const {
    const size_t content = at == 0 ? std::string::npos : pending_.find_last_not_of(" \t\r", at - 1);
    return content == std::string::npos ? begins_line_ : pending_[content] == '\n';
  }

  // Returns the place of an opener that begins a line. Reduces `end` if the text may end within one.
  size_t find_call_open(size_t& end) const {
    size_t first = std::string::npos;
    for (const std::string_view open : call_opens_) {
      for (size_t at = pending_.find(open); at < end; at = pending_.find(open, at + 1))
        if (begins_line(at)) {
          first = std::min(first, at);
          break;
        }
      end = std::min(end, pending_.size() - num_held_back(pending_, open));
    }
    return first;
  }

  // Reads a possible call with a parser of its own, which is kept if the text is a call.
  bool try_call(size_t at, AnswerParts& parts) {
    add_reasoning(trimmed_size(pending_, at), parts);
    const std::string text(trim_front(pending_));
    std::unique_ptr<AnswerParser> trial = make_rest_();
    AnswerParts read;
    trial->push(text, read);
    if (read.all().empty()) return false;
    if (read.all().front().kind != Kind::kCall) {
      // The opener is part of the reasoning.
      add_reasoning(pending_.size() - text.size() + 1, parts);
      return true;
    }
    rest_ = std::move(trial);
    tag_ = Tag::kAwaited;
    for (const AnswerPart& part : read.all()) add_rest(part, parts);
    pending_.clear();
    place_ = Place::kAfter;
    return false;
  }

  // The tag that would follow if the text were not cut off.
  void remove_cut_tag() {
    const std::string_view text = trim_front(pending_);
    const auto is_cut = [&](std::string_view tag) { return num_cut_marker(text, tag) == text.size(); };
    if (place_ == Place::kStart && !text.empty() && (is_cut(format_.open) || is_cut(format_.close)))
      pending_.clear();
    if (place_ != Place::kInside) return;
    remove_cut_marker(pending_, call_opens_);
    remove_cut_marker(pending_, std::array{format_.close});
  }

  // At the end of the text, a call that was held back is complete, was cut off before its name, or is
  // reasoning.
  bool finish_trial(AnswerParts& parts, bool complete) {
    size_t end = pending_.size();
    const size_t call = find_call_open(end);
    if (call == std::string::npos) return false;
    std::unique_ptr<AnswerParser> trial = make_rest_();
    AnswerParts read;
    trial->push(std::string_view(pending_).substr(call), read);
    trial->finish(read, complete);
    if (read.all().empty() ? complete : read.all().front().kind != Kind::kCall) return false;
    add_reasoning(trimmed_size(pending_, call), parts);
    pending_.clear();
    tag_ = Tag::kAwaited;
    for (const AnswerPart& part : read.all()) add_rest(part, parts);
    parts.add(Kind::kText, held_text_);
    return true;
  }

  void go_on(AnswerParts& parts) {
    if (after_tag_) pending_ = trim_front(pending_);
    if (pending_.empty()) return;
    after_tag_ = false;
    push_rest(std::exchange(pending_, {}), parts);
  }

  void push_rest(std::string_view text, AnswerParts& parts) {
    if (tag_ == Tag::kNone) return rest_->push(text, parts);
    AnswerParts rest;
    rest_->push(text, rest);
    for (const AnswerPart& part : rest.all()) add_rest(part, parts);
  }

  // Adds a part that follows the reasoning. After a call within it, the tag that closes it and the spaces
  // next to the tag are not text.
  void add_rest(const AnswerPart& part, AnswerParts& parts) {
    if (part.kind != Kind::kText || tag_ == Tag::kNone) {
      parts.add(Kind::kText, std::exchange(held_text_, {}));
      return parts.add(part.kind, part.text);
    }
    held_text_ += part.text;
    if (tag_ == Tag::kAwaited) {
      const size_t close = held_text_.find(format_.close);
      const bool found = close != std::string::npos;
      const size_t end = found ? close : held_text_.size() - num_held_back(held_text_, format_.close);
      const size_t size = trimmed_size(held_text_, end);
      parts.add(Kind::kText, std::string_view(held_text_).substr(0, size));
      held_text_.erase(0, found ? close + format_.close.size() : size);
      if (!found) return;
      tag_ = Tag::kRead;
    }
    held_text_ = trim_front(held_text_);
    if (held_text_.empty()) return;
    tag_ = Tag::kNone;
    parts.add(Kind::kText, std::exchange(held_text_, {}));
  }

  const ReasoningFormat& format_;
  bool inside_;
  std::function<std::unique_ptr<AnswerParser>()> make_rest_;
  Texts call_opens_;
  std::unique_ptr<AnswerParser> rest_;
  Place place_ = Place::kStart;
  std::string pending_;
  bool has_content_ = false;  // reasoning other than spaces has arrived
  bool begins_line_ = true;   // the pending text begins a line, except for spaces
  bool after_tag_ = false;    // only spaces have arrived since the closing tag
  Tag tag_ = Tag::kNone;
  std::string held_text_;  // after a call within the reasoning: may belong to the closing tag
};

// Finds drafted tokens that might complete a marker. A draft ends before them, since the masks after them
// depend on whether they do.
class MarkerWatch {
 public:
  // Appends a token that follows. `text`: what the stream's decoder returned for it. Bytes of tokens that it
  // held back are part of a later text.
  void push(const Tokenizer& tokenizer, int32_t token_id, std::string_view text) {
    if (!text.empty()) held_.clear();
    held_ += tokenizer.decode({&token_id, 1}, /*skip_special_tokens=*/false);
  }
  // Returns the number of first tokens that do not contain the last byte of any of these markers.
  size_t num_before(const Tokenizer& tokenizer, std::span<const int32_t> tokens, const Texts& markers) const {
    const auto may_complete = [&](std::string_view text) {
      return std::ranges::any_of(markers, [&](std::string_view marker) {
        return text.find(marker.back()) != std::string_view::npos;
      });
    };
    if (may_complete(held_)) return 0;
    const auto found = std::ranges::find_if(tokens, [&](int32_t token_id) {
      return may_complete(tokenizer.decode({&token_id, 1}, /*skip_special_tokens=*/false));
    });
    return static_cast<size_t>(found - tokens.begin());
  }

 private:
  std::string held_;  // of the tokens that the decoder may not have returned completely
};

class ReasoningMask final : public TokenMask {
 public:
  ReasoningMask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                bool inside, std::vector<int32_t> stop_ids, const Texts& call_opens)
      : format_(format),
        mask_(std::move(mask)),
        tokenizer_(tokenizer),
        inside_at_start_(inside),
        stop_ids_(std::move(stop_ids)),
        call_opens_(call_opens),
        num_kept_(format.close.size()),
        place_(inside ? Place::kInside : Place::kStart),
        open_(tokenizer.token_id(format.open)),
        decoder_(tokenizer, /*skip_special_tokens=*/false) {
    constexpr size_t kMaxIndent = 16;
    for (const std::string_view open : call_opens_) num_kept_ = std::max(num_kept_, open.size() + kMaxIndent);
  }

  bool fill(std::span<uint32_t> words) override {
    if (place_ == Place::kInside) return exclude_end(words);
    const bool masked = mask_->fill(words);
    if (masked && place_ == Place::kStart && open_ && static_cast<size_t>(*open_) / 32 < words.size())
      words[static_cast<size_t>(*open_) / 32] |= 1u << (*open_ % 32);
    return masked;
  }

  void accept(int32_t token_id) override {
    if (place_ == Place::kStart) place_ = token_id == open_ ? Place::kInside : Place::kAfter;
    if (place_ == Place::kAfter) return mask_->accept(token_id);
    const std::string added = decoder_.push(token_id);
    watch_.push(tokenizer_, token_id, added);
    text_ += added;
    if (text_.find(format_.close) != std::string::npos) place_ = Place::kAfter;
    has_call_ |= std::ranges::any_of(call_opens_, [&](std::string_view open) { return begins_line(open); });
    if (text_.size() <= num_kept_) return;
    is_cut_ = true;
    text_.erase(0, text_.size() - num_kept_);
  }

  bool ready() override { return place_ == Place::kInside || mask_->ready(); }
  bool wait_for(std::chrono::microseconds timeout) override {
    return place_ == Place::kInside || mask_->wait_for(timeout);
  }

  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<ReasoningMask>(format_, mask_->fork(), tokenizer_, inside_at_start_, stop_ids_,
                                           call_opens_);
  }

  size_t draft(std::span<const int32_t> tokens) override {
    if (tokens.empty()) return 0;
    drafted_place_ = place_ != Place::kStart ? place_ : tokens[0] == open_ ? Place::kInside : Place::kAfter;
    if (drafted_place_ == Place::kAfter) return mask_->draft(tokens);
    return std::min(watch_.num_before(tokenizer_, tokens, {format_.close}),
                    watch_.num_before(tokenizer_, tokens, call_opens_));
  }
  bool fill_after(size_t num_tokens, std::span<uint32_t> words) override {
    return drafted_place_ == Place::kInside ? exclude_end(words) : mask_->fill_after(num_tokens, words);
  }

 private:
  enum class Place { kStart, kInside, kAfter };

  bool begins_line(std::string_view open) const {
    for (size_t at = text_.find(open); at != std::string::npos; at = text_.find(open, at + 1)) {
      const size_t content = at == 0 ? std::string::npos : text_.find_last_not_of(" \t\r", at - 1);
      if (content == std::string::npos ? !is_cut_ : text_[content] == '\n') return true;
    }
    return false;
  }

  // An answer that ends within its reasoning is not of the grammar.
  bool exclude_end(std::span<uint32_t> words) const {
    if (has_call_) return false;
    std::ranges::fill(words, ~0u);
    for (const int32_t id : stop_ids_)
      if (const auto bit = static_cast<size_t>(id); bit / 32 < words.size())
        words[bit / 32] &= ~(1u << (bit % 32));
    return true;
  }

  const ReasoningFormat& format_;
  std::shared_ptr<TokenMask> mask_;
  Tokenizer tokenizer_;
  bool inside_at_start_;
  std::vector<int32_t> stop_ids_;
  Texts call_opens_;
  size_t num_kept_;                              // bytes that may contain a marker
  Place place_, drafted_place_ = Place::kAfter;  // the latter: after each drafted token
  bool has_call_ = false;                        // the reasoning contains an opener of calls
  std::optional<int32_t> open_;
  StreamDecoder decoder_;
  MarkerWatch watch_;
  std::string text_;     // last bytes of the reasoning
  bool is_cut_ = false;  // the reasoning begins before text_
};

class ReasoningBudget final : public TokenMask {
 public:
  ReasoningBudget(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                  bool inside, int max_tokens)
      : format_(format),
        mask_(std::move(mask)),
        tokenizer_(tokenizer),
        inside_at_start_(inside),
        max_tokens_(max_tokens),
        place_(inside ? Place::kInside : Place::kStart),
        decoder_(tokenizer, /*skip_special_tokens=*/false) {
    const Tokenizer::Part close{format.close, /*special_tokens=*/true};
    close_ids_ = tokenizer.encode(std::span(&close, 1));
  }

  bool fill(std::span<uint32_t> words) override {
    const bool masked = mask_ && mask_->fill(words);
    return is_closing() ? force(num_forced_, masked, words) : masked;
  }

  void accept(int32_t token_id) override {
    if (mask_) mask_->accept(token_id);
    if (place_ == Place::kAfter && !format_.channels) return;
    num_forced_ += is_closing();
    const std::string added = decoder_.push(token_id);
    watch_.push(tokenizer_, token_id, added);
    text_ += added;
    if (place_ == Place::kInside)
      read_reasoning();
    else
      find_open();
  }

  bool ready() override { return !mask_ || mask_->ready(); }
  bool wait_for(std::chrono::microseconds timeout) override { return !mask_ || mask_->wait_for(timeout); }

  std::shared_ptr<TokenMask> fork() const override {
    return std::make_shared<ReasoningBudget>(format_, mask_ ? mask_->fork() : nullptr, tokenizer_,
                                             inside_at_start_, max_tokens_);
  }

  size_t draft(std::span<const int32_t> tokens) override {
    size_t num = tokens.size();
    if (place_ != Place::kAfter || format_.channels)
      num = watch_.num_before(tokenizer_, tokens, {place_ == Place::kInside ? format_.close : format_.open});
    // The last forced token ends the reasoning.
    while (num > 0 && place_ == Place::kInside && num_forced_after(num) >= close_ids_.size()) --num;
    return mask_ && num > 0 ? mask_->draft(tokens.first(num)) : num;
  }
  bool fill_after(size_t num_tokens, std::span<uint32_t> words) override {
    const bool masked = mask_ && mask_->fill_after(num_tokens, words);
    if (place_ != Place::kInside || num_tokens_ + static_cast<int>(num_tokens) < max_tokens_) return masked;
    return force(num_forced_after(num_tokens), masked, words);
  }

 private:
  enum class Place { kStart, kInside, kAfter };

  bool is_closing() const { return place_ == Place::kInside && num_tokens_ >= max_tokens_; }

  // Number of forced tokens after more tokens of the reasoning.
  size_t num_forced_after(size_t num_tokens) const {
    const auto num = static_cast<int>(num_tokens);
    return num_forced_ + static_cast<size_t>(std::clamp(num_tokens_ + num - max_tokens_, 0, num));
  }

  // Forces a token of the closing tag, unless a grammar that contains the reasoning excludes it.
  bool force(size_t close_idx, bool masked, std::span<uint32_t> words) const {
    const auto id = static_cast<size_t>(close_ids_[close_idx]);
    const uint32_t bit = 1u << (id % 32);
    if (masked && (words[id / 32] & bit) == 0) return true;
    std::ranges::fill(words, 0u);
    words[id / 32] = bit;
    return true;
  }

  // The reasoning begins the answer. With channels, it may go on after other messages.
  void find_open() {
    const std::string_view text = trim_front(text_);
    const size_t open = text_.find(format_.open);
    if (open != std::string::npos && (format_.channels || text.starts_with(format_.open))) {
      place_ = Place::kInside;
      num_forced_ = 0;
      text_.erase(0, open + format_.open.size());
    } else if (format_.channels) {
      keep_last(format_.open.size());
    } else if (!format_.open.starts_with(text)) {
      place_ = Place::kAfter;
    }
  }

  void read_reasoning() {
    ++num_tokens_;
    if (text_.find(format_.close) != std::string::npos || num_forced_ == close_ids_.size()) {
      place_ = Place::kAfter;
      text_.clear();
    }
    keep_last(format_.close.size());
  }

  void keep_last(size_t size) { text_.erase(0, text_.size() - std::min(text_.size(), size)); }

  const ReasoningFormat& format_;
  std::shared_ptr<TokenMask> mask_;
  Tokenizer tokenizer_;
  bool inside_at_start_;
  int max_tokens_;
  Place place_;
  StreamDecoder decoder_;
  MarkerWatch watch_;
  std::vector<int32_t> close_ids_;
  std::string text_;  // last bytes that may contain a tag
  int num_tokens_ = 0;
  size_t num_forced_ = 0;  // tokens of the closing tag that were forced
};

constexpr ReasoningFormat kReasoningFormats[] = {
    {.names = {"qwen3",       "qwen3-thinking", "deepseek-r1",
               "deepseek_r1", "deepseek-v3",    "deepseek_v3",
               "glm45",       "glm47",          "kimi_k2",
               "minimax",     "minimax_m2",     "step3",
               "deepseek-v4", "deepseek_v4",    "ernie45",
               "holo2",       "interns1",       "mimo",
               "nemotron_3",  "nemotron_v3",    "olmo3",
               "step3p5",     "hunyuan_a13b",   "deepseek-v41",
               "dots",        "gigachat35",     "granite_thinking_parser",
               "hunyuan",     "hy_v3",          "iquest_q1",
               "ling3",       "nanbeige",       "poolside_v1"},
     .open = "<think>",
     .close = "</think>"},
    {.names = {"gpt-oss", "openai_gptoss"},
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .special = true,
     .channels = true,
     .efforts = {"low", "medium", "high"}},
    {.names = {"mistral"}, .open = "[THINK]", .close = "[/THINK]", .special = true},
    {.names = {"kimi"}, .open = "◁think▷", .close = "◁/think▷"},
    {.names = {"gemma4"}, .open = "<|channel>thought\n", .close = "<channel|>", .special = true},
    {.names = {"seed_oss"}, .open = "<seed:think>", .close = "</seed:think>", .special = true},
    {.names = {"cohere_command3", "cohere_command4"},
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
     .special = true},
    {.names = {"kimi_k3"},
     .open = "<|open|>think<|sep|>",
     .close = "<|close|>think<|sep|>",
     .dropped = {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
     .special = true},
    {.names = {"minimax-m3", "minimax_m3"}, .open = "<mm:think>", .close = "</mm:think>"},
    {.names = {"hy_v3_opensource"},
     .open = "<think:opensource>",
     .close = "</think:opensource>",
     .special = true},
    {.names = {"apertus2509"}, .open = "<|inner_prefix|>", .close = "<|inner_suffix|>", .special = true},
    {.names = {"granite"}, .open = "Here is my thought process:", .close = "Here is my response:"},
    {.names = {"granite33"},
     .open = "<think>",
     .close = "</think>",
     .dropped = {"<response>", "</response>"}},
};

// Names of SGLang and vLLM for formats that a record cannot describe.
constexpr UnsupportedFormat kUnsupportedReasoning[] = {
    {"k2_horizon", "the tags of K2 Horizon depend on the effort"},
    {"minimax-append-think", "it keeps the reasoning in the text; use none"},
    {"minimax_m2_append_think", "it keeps the reasoning in the text; use none"},
    {"muse", "Muse Glimmer writes text, reasoning and calls as messages to recipients"},
    {"inkling", "Inkling writes text, reasoning and calls as separate messages"},
    {"beam", "Beam writes channels, which its response template defines"},
    {"response_template",
     "the model's response template defines the format, and attend does not read such templates"},
};

}  // namespace

std::span<const UnsupportedFormat> unsupported_reasoning_formats() { return kUnsupportedReasoning; }

std::span<const ReasoningFormat> reasoning_formats() { return kReasoningFormats; }

const ReasoningFormat& parse_reasoning_format(std::string_view name) {
  std::string all_names;
  for (const ReasoningFormat& format : kReasoningFormats)
    for (const std::string_view known : format.names) {
      if (known == name) return format;
      all_names += (all_names.empty() ? "" : ", ") + std::string(known);
    }
  for (const UnsupportedFormat& format : kUnsupportedReasoning)
    if (format.name == name)
      fail(ErrorCode::kUnsupported, "--reasoning-parser ", name, ": not supported: ", format.why);
  fail(ErrorCode::kInvalidArgument, "--reasoning-parser ", name, ": expected auto, none or one of ",
       all_names);
}

bool has_special_tags(const ReasoningFormat& format, const Tokenizer& tokenizer) {
  return std::ranges::any_of(std::array{format.open, format.close}, [&](std::string_view tag) {
    const auto id = tokenizer.token_id(tag);
    return id && tokenizer.is_special(*id);
  });
}

bool begins_with_special_tokens(const ReasoningFormat& format, const Tokenizer& tokenizer) {
  return std::ranges::all_of(std::array{format.open, format.close}, [&](std::string_view tag) {
    const Tokenizer::Part part{tag, /*special_tokens=*/true};
    const std::vector<int32_t> ids = tokenizer.encode(std::span(&part, 1));
    return !ids.empty() && tokenizer.is_special(ids.front());
  });
}

bool opens_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  if (format.channels) return false;
  const std::string_view open = format.open.substr(0, trimmed_size(format.open, format.open.size()));
  return prompt.substr(0, trimmed_size(prompt, prompt.size())).ends_with(open);
}

std::unique_ptr<AnswerParser> make_reasoning_parser(const ReasoningFormat& format, bool inside,
                                                    std::function<std::unique_ptr<AnswerParser>()> make_rest,
                                                    const Texts& call_opens) {
  return std::make_unique<ReasoningParser>(format, inside, std::move(make_rest), call_opens);
}

std::shared_ptr<TokenMask> make_reasoning_budget(const ReasoningFormat& format,
                                                 std::shared_ptr<TokenMask> mask, const Tokenizer& tokenizer,
                                                 bool inside, int max_tokens) {
  return std::make_shared<ReasoningBudget>(format, std::move(mask), tokenizer, inside, max_tokens);
}

std::shared_ptr<TokenMask> make_reasoning_mask(const ReasoningFormat& format, std::shared_ptr<TokenMask> mask,
                                               const Tokenizer& tokenizer, bool inside,
                                               std::vector<int32_t> stop_ids, const Texts& call_opens) {
  return std::make_shared<ReasoningMask>(format, std::move(mask), tokenizer, inside, std::move(stop_ids),
                                         call_opens);
}

}  // namespace attend::serve
