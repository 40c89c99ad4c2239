// Tokenizer: converts text to token ids and back, from a Hugging Face tokenizer.json.
//
// The results are equal to those of the `tokenizers` library on the same file. Supported are BPE models,
// byte-level (Llama 3, Qwen, GPT-2) and SentencePiece-style with byte fallback (Llama 2, Mistral, Gemma),
// WordPiece models (BERT) and Unigram models (XLM-RoBERTa), with their normalizers, pre-tokenizers,
// post-processors, decoders and added tokens. Everything else is rejected at load time with an Error that
// names the file, the field, its value and what is accepted:
//   kNotFound     no such file
//   kCorruptFile  not JSON, or inconsistent: ids that are not dense, merges of unknown tokens, ...
//   kUnsupported  another type of model, normalizer, ..., or a regex without a translation
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

class Checkpoint;

// Side of a text at which tokens are dropped.
enum class TruncationSide { kLeft, kRight };

// Immutable, cheap to copy and thread-safe.
class Tokenizer {
 public:
  // Reads the tokenizer of a checkpoint; returns no value without a tokenizer.json. tokenizer_config.json and
  // special_tokens_map.json are also read if present: they name the special tokens and may add tokens.
  // tokenizer.json decides which tokens encode() adds around a text; add_bos_token and add_eos_token of the
  // other files are ignored, with a warning if they differ.
  static std::optional<Tokenizer> find(const Checkpoint& checkpoint);
  // Like find(), for a tokenizer.json, a GGUF file or a model directory, which must have a tokenizer.
  static Tokenizer from_path(const std::filesystem::path& path);

  // Returns the ids of `text`. Bytes that are not UTF-8 are replaced by U+FFFD, one for each maximal invalid
  // part, like Python's bytes.decode(errors="replace"). Special tokens that are spelled out in the text are
  // recognized. `add_special_tokens`: adds the tokens of the file's post-processor, such as BOS.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;

  // Like encode(text, add_special_tokens), but drops tokens at a side of the text until at most `max_tokens`
  // remain with the added ones, or until no token of the text is left. `is_truncated`, if not null, is set to
  // whether tokens were dropped. The time depends on `max_tokens`: only the part of the text is encoded that
  // yields these tokens and 256 more, which separate them from the cut.
  std::vector<int32_t> encode_truncated(std::string_view text, size_t max_tokens,
                                        TruncationSide side = TruncationSide::kRight,
                                        bool add_special_tokens = true, bool* is_truncated = nullptr) const;

  // Ids of two texts with the tokens of the post-processor's template for pairs, and the type of each token:
  // the text that it belongs to, as BERT counts. Throws Error(kUnsupported) if the post-processor has no such
  // template.
  struct EncodedPair {
    std::vector<int32_t> ids, types;
  };
  // Maximum numbers of tokens, 0: no limit. Texts are truncated at their ends: the second one to
  // `max_second_tokens`, then the longer one, and at last both to the same length, until at most `max_tokens`
  // remain with the added ones (the strategy "longest_first" of the `tokenizers` library).
  struct PairLimits {
    size_t max_tokens = 0, max_second_tokens = 0;
  };
  EncodedPair encode_pair(std::string_view first, std::string_view second, const PairLimits& limits) const;
  EncodedPair encode_pair(std::string_view first, std::string_view second) const;

  // Encodes parts of a text together, without added tokens. A special token is recognized only if its
  // complete text is in parts with `special_tokens`. Throws Error(kInvalidArgument) if a part is not valid
  // UTF-8.
  struct Part {
    std::string_view text;
    bool special_tokens = true;
  };
  std::vector<int32_t> encode(std::span<const Part> parts) const;

  // Returns the text of `ids`, always valid UTF-8. Ids outside of the vocabulary are ignored, since a model's
  // output may be wider than its vocabulary. `skip_special_tokens`: omits special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;
  // Returns the part of decode(ids) that does not change if more ids follow: without a character at its end
  // whose last bytes are missing. StreamDecoder::set_prompt() continues it.
  std::string decode_prefix(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Largest id + 1, including added tokens. Every smaller id has a token.
  int32_t vocab_size() const;
  std::optional<int32_t> token_id(std::string_view token) const;
  // Returns the token as spelled in the file ("Ġthe", "▁the", "<0x0A>"). Throws Error(kInvalidArgument) for
  // an id outside of the vocabulary.
  const std::string& token(int32_t id) const;
  // Returns false for ids outside of the vocabulary.
  bool is_special(int32_t id) const;
  // Returns for each id the bytes that its token adds to a non-empty text. They may be part of a character.
  // Special tokens have no bytes.
  std::vector<std::string> token_bytes() const;

  // Return the tokens that tokenizer_config.json or special_tokens_map.json names, or no value.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

 private:
  friend class StreamDecoder;
  friend class TokenTextDecoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Decodes a growing sequence of ids. The concatenated results of all push() calls and flush() equal decode()
// of all ids. push() returns only text that later ids cannot change, so it never splits a character; with
// byte fallback, the text of byte tokens is returned with the next other token. Not thread-safe.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // Call before the first push(): the ids that follow continue `prompt`. With all = prompt + ids, the results
  // then equal decode(all) without the longest common prefix of decode(all) and decode(prompt), or of
  // decode(all) and decode_prefix(prompt) if `after_prefix`. Only the last tokens of the prompt are decoded:
  // 8 that are not special, and complete runs of byte tokens of up to 256.
  void set_prompt(std::span<const int32_t> prompt, bool after_prefix = false);

  // Returns the text that the id completes, often empty.
  std::string push(int32_t id);
  // Ends the sequence and returns the rest of its text. The next push() starts a new sequence.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Text and bytes that a token adds to a text.
struct TokenText {
  // Characters that the token completes. A character of several tokens belongs to the token with its last
  // byte. The concatenated texts of tokens with is_in_text equal the decoded text.
  std::string text;
  std::string bytes;       // bytes that the token adds, possibly part of a character
  bool is_in_text = true;  // false: a special token that the decoded text omits; `text` is its name
};

// Decodes the text and bytes of each token of a sequence, as shown with logprobs. Not thread-safe.
class TokenTextDecoder {
 public:
  explicit TokenTextDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~TokenTextDecoder();
  TokenTextDecoder(TokenTextDecoder&&) noexcept;
  TokenTextDecoder& operator=(TokenTextDecoder&&) noexcept;

  // Call before the first push(): the ids that follow continue `prompt`.
  void set_prompt(std::span<const int32_t> prompt);
  // Returns the text of `id` as the next token, without appending it. Ids outside of the vocabulary have
  // empty texts.
  TokenText decode(int32_t id) const;
  // Returns the same as decode(), and appends the token.
  TokenText push(int32_t id);
  // Ends the text: returns U+FFFD if its last character is incomplete.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
