// Decoders: from tokens back to text.
//
// tokenizer.json `decoder`: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, Sequence, or
// none at all (tokens joined by spaces). Others are refused by name.
//
// A decoder is a chain of steps that work on a stream of tokens, so that decoding all at once and token by
// token are the same code: what a step can not decide yet, it holds back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// A part of one token on its way through the chain. The text is valid UTF-8.
struct TokenPart {
  std::string_view text;
  bool opens = true;   // the first part of its token
  bool closes = true;  // the last part of its token
};

// A step of a chain while it runs: takes parts, passes parts on.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(const TokenPart& part) = 0;
  // No more parts will come.
  virtual void finish() = 0;
};

// What tokenizer.json says about one step. Immutable; outlives the steps it makes.
class DecoderConfig {
 public:
  virtual ~DecoderConfig() = default;
  virtual std::unique_ptr<DecodeStep> make(DecodeStep& next) const = 0;
};

// A running chain.
class DecodeChain {
 public:
  // Appends to `out`, which outlives the chain.
  void push(std::string_view token) { first_->push({token, true, true}); }
  void finish() { first_->finish(); }

 private:
  friend class Decoder;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
  DecodeStep* first_ = nullptr;
};

class Decoder {
 public:
  // No node: tokens joined by spaces. Error(kUnsupported) for a type that attend lacks, Error(kCorruptFile)
  // for a wrong shape.
  explicit Decoder(const std::optional<JsonNode>& node);

  DecodeChain start(std::string& out) const;

 private:
  std::vector<std::unique_ptr<DecoderConfig>> configs_;
  bool join_with_spaces_ = false;
};

// The configuration of one step; nothing if attend has no step of that type.
std::unique_ptr<DecoderConfig> make_decoder_config(const JsonNode& node, std::string_view type);

}  // namespace attend::tokenizer
