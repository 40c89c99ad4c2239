// ChatTemplate: renders a conversation as the text that a model was trained on.
//
// The results are equal to those of transformers' apply_chat_template on the same files. The supported part
// of Jinja is the one that templates of published models use (docs/chat-templates.md). Other constructs are
// rejected, with their line, when the template is parsed.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/text/tokenizer/tokenizer.h"

#pragma GCC visibility push(default)
namespace attend {

// Immutable, cheap to copy and thread-safe.
class ChatTemplate {
 public:
  // Returns the template of a checkpoint: chat_template.jinja, else "chat_template" of tokenizer_config.json,
  // which may be several named templates. Files additional_chat_templates/NAME.jinja are further ones.
  // `name_or_path`: a file with a template that replaces it, or the name of one of several. If empty, the
  // template named "default" is used, and "tool_use" for requests with tools. Returns no value if the
  // checkpoint has no template. Throws
  //   Error(kNotFound)     no such file, and no template with that name
  //   Error(kCorruptFile)  invalid Jinja, with file and line
  //   Error(kUnsupported)  valid Jinja that attend does not support, with file and line
  static std::optional<ChatTemplate> find(const Checkpoint& checkpoint, const std::string& name_or_path = {});
  // Like find(open_checkpoint(path), name_or_path).
  static std::optional<ChatTemplate> find(const std::filesystem::path& path,
                                          const std::string& name_or_path = {});

  // Returns the Jinja source of all templates.
  const std::string& source() const;

  // Returns false if the template rejects a message with two calls.
  bool accepts_parallel_calls() const;

  // Part of a rendered conversation. Special tokens are recognized in text of the template, and not in text
  // of a user.
  struct Part {
    std::string text;
    bool from_user = false;
  };

  // `variables`: a JSON object with all variables of the template: "messages", and optionally "tools" and
  // variables specific to this template. A content that is a list of texts is joined if the template supports
  // only texts, and arguments of tool calls are parsed to objects. `add_generation_prompt`: the text ends
  // with the start of the assistant's turn. Throws Error(kInvalidArgument) if the template rejects the
  // conversation or fails.
  std::vector<Part> render(std::string_view variables, bool add_generation_prompt = true,
                           std::time_t now = std::time(nullptr)) const;

  // Like render(), cut after the last occurrence of `content`, the content of the last message, which the
  // model continues, as transformers' continue_final_message does. Throws Error(kInvalidArgument) if the
  // template does not render the content.
  std::vector<Part> render_continued(std::string_view variables, std::string_view content,
                                     std::time_t now = std::time(nullptr)) const;

  // Returns the token ids of render()'s result. The template emits BOS itself, so no special tokens are
  // added.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view variables,
                              bool add_generation_prompt = true, std::time_t now = std::time(nullptr)) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// Returns the token ids of a rendered conversation.
std::vector<int32_t> encode_parts(const Tokenizer& tokenizer, const std::vector<ChatTemplate::Part>& parts);

}  // namespace attend
#pragma GCC visibility pop
