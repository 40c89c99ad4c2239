// The parts of a tokenizer, as read from its files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attend/text/tokenizer/added_tokens.h"
#include "attend/text/tokenizer/pipeline/decoder.h"
#include "attend/text/tokenizer/pipeline/normalizer.h"
#include "attend/text/tokenizer/pipeline/post_processor.h"
#include "attend/text/tokenizer/pipeline/pre_tokenizer.h"
#include "attend/text/tokenizer/token_model.h"
#include "attend/text/tokenizer/tokenizer.h"
#include "attend/text/tokenizer/tokenizer_config.h"

namespace attend {

struct Tokenizer::Impl {
  // Reads a tokenizer.json and what `checkpoint` has next to it; see Tokenizer::from_path.
  Impl(const JsonNode& root, const Checkpoint& checkpoint);
  // The same; frees the tree of `root`.
  static std::shared_ptr<const Impl> read(std::optional<JsonNode> root, const Checkpoint& checkpoint);

  // Strings of the model's vocabulary or of added_tokens.
  struct Token {
    const std::string* spelling = nullptr;
    const std::string* decoded = nullptr;  // what the decoder gets; differs for normalized added tokens
    bool special = false;
  };

  std::unique_ptr<tokenizer::Normalizer> normalizer;       // may be null
  std::unique_ptr<tokenizer::PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<tokenizer::TokenModel> model;
  std::unique_ptr<tokenizer::Decoder> decoder;
  tokenizer::PostProcessor post_processor;
  tokenizer::AddedTokens added_tokens;
  std::vector<Token> tokens;  // by id
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> pad_id;

  std::optional<int32_t> token_id(std::string_view token) const;
  // The token, or null outside of the vocabulary.
  const Token* find(int32_t id) const;
  // What the decoder gets for the id, or null if decoding skips it.
  const std::string* decodable(int32_t id, bool skip_special_tokens) const;
  // The ids of any bytes, repaired where they are not UTF-8, without what the post-processor adds.
  std::vector<int32_t> ids_of(std::string_view text) const;
  // Appends the ids of valid UTF-8 text, without what the post-processor adds. `plain`: empty, or for each
  // byte whether it may be no part of a special token.
  void encode(std::string_view text, const std::vector<bool>& plain, std::vector<int32_t>& ids) const;

 private:
  // Text between tokens that were found in it as it is, not normalized yet. What follows is `plain` all of
  // it, or none. Both give the bytes that the text became.
  size_t encode_between(tokenizer::NormalizedText text, bool first, bool plain,
                        tokenizer::RegexScratch& scratch, std::vector<int32_t>& ids) const;
  size_t encode_normalized(tokenizer::NormalizedText text, bool plain, tokenizer::RegexScratch& scratch,
                           std::vector<int32_t>& ids) const;
  void read_added_tokens(const JsonNode& root, const tokenizer::TokenizerConfig& config);
  void add_token(tokenizer::AddedToken token, std::optional<int32_t> declared_id, const std::string& where);
  void list_tokens(const std::string& file);
  void name_tokens(const tokenizer::TokenizerConfig& config);

  int32_t next_id_ = 0;  // of an added token that the model does not know
};

}  // namespace attend
