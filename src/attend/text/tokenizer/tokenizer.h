// Text to token ids and back, from a Hugging Face tokenizer.json.
//
// The results are those of the `tokenizers` library on the same file. Read are BPE models, byte-level ones
// (Llama 3, Qwen, GPT-2) and SentencePiece-style ones with byte fallback (Llama 2, Mistral, Gemma), and
// WordPiece models (BERT), with the normalizers, pre-tokenizers, post-processors, decoders and added tokens
// that go with them. Everything else is refused at load time with an Error that names the file, the field,
// its value and what would be accepted:
//   kNotFound     no such file
//   kCorruptFile  not JSON, or contradicts its own format: ids that are not dense, merges of unknown tokens,
//   ... kUnsupported  another type of model, normalizer, ..., or a regex without a translation
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

// Immutable, and cheap to copy. All functions may be called from several threads at once.
class Tokenizer {
 public:
  // Reads the tokenizer of a checkpoint; none: it has no tokenizer.json. tokenizer_config.json and
  // special_tokens_map.json are read where they stand beside it: they name the special tokens and may add
  // tokens. What encode() puts around a text is tokenizer.json's affair; add_bos_token and add_eos_token
  // beside it are ignored, with a warning if they differ.
  static std::optional<Tokenizer> find(const Checkpoint& checkpoint);
  // The same of a tokenizer.json or a model directory, which has to have one.
  static Tokenizer from_path(const std::filesystem::path& path);

  // The ids of `text`. Bytes that are not UTF-8 become U+FFFD first, one for each maximal invalid part, as
  // Python's bytes.decode(errors="replace") does. Special tokens that are spelled out in the text are
  // recognized. `add_special_tokens`: with what the file's post-processor puts around a text, such as a
  // beginning-of-text token.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;

  // The same with what goes around a text, which loses tokens at its end until all are at most `max_tokens`,
  // or none of its own is left.
  std::vector<int32_t> encode_truncated(std::string_view text, size_t max_tokens) const;

  // The ids of parts of a text, as of all of it, with nothing around it. Special tokens are recognized only
  // where all that spells them stands in parts with `special_tokens`. Each part is valid UTF-8, or
  // Error(kInvalidArgument).
  struct Part {
    std::string_view text;
    bool special_tokens = true;
  };
  std::vector<int32_t> encode(std::span<const Part> parts) const;

  // The text of `ids`, always valid UTF-8. Ids outside of the vocabulary stand for nothing: a model's output
  // may be wider than its vocabulary. `skip_special_tokens`: leaves out tokens that are special.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // Largest id + 1, added tokens included. Every id below it has a token.
  int32_t vocab_size() const;
  std::optional<int32_t> token_id(std::string_view token) const;
  // The token as the file spells it ("Ġthe", "▁the", "<0x0A>"). Error(kInvalidArgument) outside of the
  // vocabulary.
  const std::string& token(int32_t id) const;
  // False outside of the vocabulary.
  bool is_special(int32_t id) const;
  // By id, the bytes that each token adds to a text which it does not begin. They need not be whole
  // characters. None for special tokens.
  std::vector<std::string> token_bytes() const;

  // The tokens that tokenizer_config.json (or special_tokens_map.json) names; nothing if it names none.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// The text of a growing sequence of ids: all pushes and the flush together are what decode() makes of all
// ids. A push gives what no later id can change, so it never splits a character; with byte fallback, text of
// byte tokens waits for the first other token. For one thread at a time.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  // The text that the id completes, often empty.
  std::string push(int32_t id);
  // Ends the sequence and gives the rest of its text. The next push begins a new sequence.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
