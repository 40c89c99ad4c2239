// ScorePrompt: prompt of a reranker that is a language model, with a query and a document.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/text/chat_template/chat_template.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend {

// Immutable, cheap to copy and thread-safe.
class ScorePrompt {
 public:
  // Returns the model's chat template if it renders messages with the roles "query" and "document", as
  // rerankers of sentence-transformers and vLLM do, or no value. `name_or_path`: see ChatTemplate::find.
  static std::optional<ScorePrompt> find(const std::filesystem::path& model_path);
  // Returns the prompt of Qwen3-Reranker.
  static ScorePrompt qwen3();

  // Returns the token ids of the prompt. Special tokens in the texts are not recognized. `instruction`
  // describes the task; empty: the prompt's default. A document that makes the prompt longer than
  // `max_tokens` (0: no limit) is truncated. A query that begins with "<|im_start|>" is the first part of a
  // prompt that the client has rendered; the document is then its second part. Throws
  // Error(kInvalidArgument) if the prompt is too long without a document, or the template fails.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view query, std::string_view document,
                              std::string_view instruction, size_t max_tokens) const;

 private:
  ScorePrompt() = default;
  std::vector<Tokenizer::Part> render(std::string_view query, std::string_view document,
                                      std::string_view instruction, std::vector<std::string>& texts) const;

  std::optional<ChatTemplate> template_;  // none: Qwen3-Reranker's prompt
};

}  // namespace attend
