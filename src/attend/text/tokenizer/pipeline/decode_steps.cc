#include <algorithm>
#include <utility>
#include <vector>

#include "attend/text/tokenizer/growth.h"
#include "attend/text/tokenizer/pipeline/decoder.h"
#include "attend/text/tokenizer/pipeline/vocabulary_spelling.h"
#include "attend/text/tokenizer/regex/pattern.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::tokenizer {
namespace {

// Creates a step of type Step from a Config and the next step.
template <class Config, class Step>
class StepConfig : public DecoderConfig {
 public:
  explicit StepConfig(Config config) : config_(std::move(config)) {}
  std::unique_ptr<DecodeStep> make(DecodeStep& next) const override {
    return std::make_unique<Step>(config_, next);
  }

 private:
  Config config_;
};

struct Nothing {};

// Base of steps that process complete tokens: joins the parts of a token.
class FullTokenStep : public DecodeStep {
 public:
  void push(const TokenPart& part) final {
    if (part.opens && part.closes) return take(part.text);
    if (part.opens) collected_.clear();
    collected_ += part.text;
    if (part.closes) take(collected_);
  }

 protected:
  virtual void take(std::string_view token) = 0;

 private:
  std::string collected_;
};

// Base of steps that merge all tokens into one: passes on parts immediately.
class OneTokenOutput {
 public:
  explicit OneTokenOutput(DecodeStep& next) : next_(next) {}
  void push(std::string_view text) {
    if (text.empty()) return;
    next_.push({text, !opened_, false});
    opened_ = true;
  }
  void finish() {
    next_.push({{}, !opened_, true});
    next_.finish();
  }

 private:
  DecodeStep& next_;
  bool opened_ = false;
};

class FuseStep : public DecodeStep {
 public:
  FuseStep(const Nothing&, DecodeStep& next) : out_(next) {}
  void push(const TokenPart& part) override { out_.push(part.text); }
  void finish() override { out_.finish(); }

 private:
  OneTokenOutput out_;
};

// Converts the byte-level alphabet to text. A token with a character outside the alphabet represents its own
// bytes.
class ByteLevelStep : public FullTokenStep {
 public:
  ByteLevelStep(const Nothing&, DecodeStep& next) : out_(next) {}
  void finish() override {
    std::string text;
    repair_.finish(text);
    out_.push(text);
    out_.finish();
  }

 protected:
  void take(std::string_view token) override {
    const std::optional<std::string> bytes = decode_byte_level(token);
    std::string text;
    repair_.append(bytes ? *bytes : token, text);
    out_.push(text);
  }

 private:
  Utf8Repair repair_;
  OneTokenOutput out_;
};

// Converts runs of tokens like <0xE2> to text: valid UTF-8 to that text, and any other run to one U+FFFD per
// token. The text is held back until the end of the run, which decides between the two.
class ByteFallbackStep : public FullTokenStep {
 public:
  ByteFallbackStep(const Nothing&, DecodeStep& next) : next_(next) {}
  void finish() override {
    end_run();
    next_.finish();
  }

 protected:
  void take(std::string_view token) override {
    const int byte = parse_byte_token(token);
    if (byte >= 0) {
      run_.push_back(static_cast<char>(byte));
      return;
    }
    end_run();
    next_.push({token, true, true});
  }

 private:
  void end_run() {
    if (run_.empty()) return;
    if (is_valid_utf8(run_)) {
      next_.push({run_, true, true});
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_.push({kReplacementCharacter, true, true});
    }
    run_.clear();
  }

  DecodeStep& next_;
  std::string run_;
};

struct Replacement {
  Pattern pattern;
  std::string content;
  std::string where;
};

class ReplaceStep : public FullTokenStep {
 public:
  ReplaceStep(const Replacement& config, DecodeStep& next) : config_(config), next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  void take(std::string_view token) override {
    matches_.clear();
    config_.pattern.find_all(token, scratch_, matches_);
    if (matches_.empty()) return next_.push({token, true, true});
    require_growth(replaced_bytes(token, matches_, config_.content), max_decoded_bytes(token.size()),
                   config_.where);
    std::string replaced;
    replace_matches(token, matches_, config_.content, replaced);
    next_.push({replaced, true, true});
  }

 private:
  const Replacement& config_;
  DecodeStep& next_;
  RegexScratch scratch_;
  std::vector<Span> matches_;
};

struct Stripping {
  std::string content;  // one character
  uint64_t start = 0;
  uint64_t stop = 0;
};

// Removes up to `start` leading and `stop` trailing `content` characters from every token.
class StripStep : public DecodeStep {
 public:
  StripStep(const Stripping& config, DecodeStep& next) : config_(config), next_(next) {}

  void push(const TokenPart& part) override {
    if (part.opens) {
      leading_ = config_.start;
      trailing_ = 0;
    }
    std::string text;
    for (size_t at = 0; at < part.text.size();) {
      const std::string_view c = part.text.substr(at, char_bytes(part.text[at]));
      at += c.size();
      if (c != config_.content) {
        leading_ = 0;
        release(text, trailing_);
        text += c;
      } else if (leading_ > 0) {
        --leading_;
      } else if (++trailing_ > config_.stop) {
        release(text, 1);
      }
    }
    if (part.closes) trailing_ = 0;  // at most `stop` characters are held back, and they are stripped
    next_.push({text, part.opens, part.closes});
  }

  void finish() override { next_.finish(); }

 private:
  // Emits characters that were held back.
  void release(std::string& text, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) text += config_.content;
    trailing_ -= count;
  }

  const Stripping& config_;
  DecodeStep& next_;
  uint64_t leading_ = 0;   // characters that may still be stripped from the front
  uint64_t trailing_ = 0;  // characters that are held back
};

// Replaces metaspace characters by spaces. Those of the first token are removed, unless the scheme is
// "never".
class MetaspaceStep : public DecodeStep {
 public:
  MetaspaceStep(const Metaspace& config, DecodeStep& next)
      : config_(config), next_(next), first_(config.prepend != Metaspace::Prepend::kNever) {}

  void push(const TokenPart& part) override {
    std::vector<Span> matches;
    find_literal(part.text, config_.replacement, matches);
    std::string text;
    replace_matches(part.text, matches, first_ ? "" : " ", text);
    if (part.closes) first_ = false;
    next_.push({text, part.opens, part.closes});
  }

  void finish() override { next_.finish(); }

 private:
  const Metaspace& config_;
  DecodeStep& next_;
  bool first_;
};

struct WordPieces {
  std::string prefix;
  bool cleanup = true;
};

// Joins WordPiece tokens: a token with the prefix continues the word, any other starts a word after a space.
// `cleanup` removes spaces before punctuation and English contractions, within a token and its space.
class WordPieceStep : public FullTokenStep {
 public:
  WordPieceStep(const WordPieces& config, DecodeStep& next) : config_(config), next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  void take(std::string_view token) override {
    std::string text(token);
    if (!first_) {
      if (token.starts_with(config_.prefix))
        text.erase(0, config_.prefix.size());
      else
        text.insert(0, 1, ' ');
    }
    first_ = false;
    if (config_.cleanup) clean_up(text);
    next_.push({text, true, true});
  }

 private:
  static void clean_up(std::string& text) {
    static constexpr std::pair<std::string_view, std::string_view> kShorter[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [longer, shorter] : kShorter) {
      std::vector<Span> matches;
      find_literal(text, longer, matches);
      if (matches.empty()) continue;
      std::string replaced;
      replace_matches(text, matches, shorter, replaced);
      text = std::move(replaced);
    }
  }

  const WordPieces& config_;
  DecodeStep& next_;
  bool first_ = true;
};

uint64_t read_count(const JsonNode& node) {
  if (!node.value().is_number_unsigned()) node.corrupt("is not a number of characters");
  return node.value().get<uint64_t>();
}

}  // namespace

std::unique_ptr<DecoderConfig> make_decoder_config(const JsonNode& node, std::string_view type) {
  if (type == "ByteLevel") return std::make_unique<StepConfig<Nothing, ByteLevelStep>>(Nothing{});
  if (type == "ByteFallback") return std::make_unique<StepConfig<Nothing, ByteFallbackStep>>(Nothing{});
  if (type == "Fuse") return std::make_unique<StepConfig<Nothing, FuseStep>>(Nothing{});
  if (type == "Metaspace") return std::make_unique<StepConfig<Metaspace, MetaspaceStep>>(Metaspace(node));
  if (type == "Replace") {
    return std::make_unique<StepConfig<Replacement, ReplaceStep>>(
        Replacement{Pattern(node.at("pattern")), node.at("content").string(), node.where()});
  }
  if (type == "WordPiece")
    return std::make_unique<StepConfig<WordPieces, WordPieceStep>>(
        WordPieces{node.at("prefix").string(), node.at("cleanup").boolean()});
  if (type == "Strip") {
    Stripping config{{}, read_count(node.at("start")), read_count(node.at("stop"))};
    config.content = node.at("content").character();
    return std::make_unique<StepConfig<Stripping, StripStep>>(std::move(config));
  }
  return nullptr;
}

}  // namespace attend::tokenizer
