// Tokenizer::Impl: parts of a tokenizer as read from its files.
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
  // Reads a tokenizer.json and related files of `checkpoint`; see Tokenizer::from_path.
  Impl(const JsonNode& root, const Checkpoint& checkpoint);
  // Like the constructor, but frees the tree of `root`.
  static std::shared_ptr<const Impl> read(std::optional<JsonNode> root, const Checkpoint& checkpoint);

  // Strings refer to the model's vocabulary or to added_tokens.
  struct Token {
    const std::string* spelling = nullptr;
    const std::string* decoded = nullptr;  // input of the decoder; differs for normalized added tokens
    bool special = false;
  };

  std::unique_ptr<tokenizer::Normalizer> normalizer;       // may be null
  std::unique_ptr<tokenizer::PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<tokenizer::TokenModel> model;
  std::unique_ptr<tokenizer::Decoder> decoder;
  tokenizer::PostProcessor post_processor;
  tokenizer::AddedTokens added_tokens;
  std::vector<Token> tokens;  // indexed by id
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> pad_id;

  std::optional<int32_t> token_id(std::string_view token) const;
  // Returns the token, or null outside of the vocabulary.
  const Token* find(int32_t id) const;
  // Returns the decoder's input for the id, or null if decoding skips it.
  const std::string* decodable(int32_t id, bool skip_special_tokens) const;
  // Returns the decoder's inputs of the last tokens of `prompt`, which are enough to decode what follows: at
  // least 8 unless the prompt has fewer. Tokens that decoding skips do not count. A run of byte tokens is
  // complete if it has at most 256; a longer one begins with the first byte of a character.
  std::vector<const std::string*> left_context(std::span<const int32_t> prompt,
                                               bool skip_special_tokens) const;
  // Returns the ids of any bytes, repaired if they are not UTF-8, without the post-processor's tokens.
  std::vector<int32_t> encode_text(std::string_view text) const;
  // Appends the ids of valid UTF-8 text, without the post-processor's tokens. `plain`: empty, or a flag per
  // byte that excludes it from special tokens.
  void encode(std::string_view text, const std::vector<bool>& plain, std::vector<int32_t>& ids) const;

 private:
  // Appends the ids of text between tokens that were found in the raw text. The text is not normalized yet.
  // Its bytes are all `plain` or none is. Both functions return the size of the expanded text in bytes.
  size_t encode_between(tokenizer::NormalizedText text, bool first, bool plain,
                        tokenizer::RegexScratch& scratch, std::vector<int32_t>& ids) const;
  size_t encode_normalized(tokenizer::NormalizedText text, bool plain, tokenizer::RegexScratch& scratch,
                           std::vector<int32_t>& ids) const;
  void read_added_tokens(const JsonNode& root, const tokenizer::TokenizerConfig& config);
  void add_token(tokenizer::AddedToken token, std::optional<int32_t> declared_id, const std::string& where);
  void list_tokens(const std::string& file);
  void name_tokens(const tokenizer::TokenizerConfig& config);

  int32_t next_id_ = 0;  // for the next added token that is not in the model's vocabulary
};

}  // namespace attend
