// Decoder: converts tokens to text.
//
// Supported types of tokenizer.json's `decoder`: ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace,
// WordPiece, Sequence, or none (tokens are joined by spaces). Other types are rejected.
//
// A decoder is a chain of steps over a stream of tokens, so that decoding all tokens and decoding token by
// token use the same code. A step holds back text that it cannot decide yet.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/json.h"

namespace attend::tokenizer {

// Part of one token that passes through the chain. The text is valid UTF-8.
struct TokenPart {
  std::string_view text;
  bool opens = true;   // first part of its token
  bool closes = true;  // last part of its token
};

// Running step of a chain: receives parts and passes parts on.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void push(const TokenPart& part) = 0;
  // Ends the stream of parts.
  virtual void finish() = 0;
};

// Configuration of one step in tokenizer.json. Immutable; outlives the steps that it creates.
class DecoderConfig {
 public:
  virtual ~DecoderConfig() = default;
  virtual std::unique_ptr<DecodeStep> make(DecodeStep& next) const = 0;
};

// Running chain of steps.
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
  // Without a node, tokens are joined by spaces. Throws Error(kUnsupported) for an unsupported type,
  // Error(kCorruptFile) for a malformed node.
  explicit Decoder(const std::optional<JsonNode>& node);

  DecodeChain start(std::string& out) const;

 private:
  std::vector<std::unique_ptr<DecoderConfig>> configs_;
  bool join_with_spaces_ = false;
};

// Returns the configuration of one step, or null for an unsupported type.
std::unique_ptr<DecoderConfig> make_decoder_config(const JsonNode& node, std::string_view type);

}  // namespace attend::tokenizer
