// Chat templates: a conversation as the text that a model was trained on.
//
// The results are those of transformers' apply_chat_template on the same files. Read is the part of Jinja
// that templates of published models use (docs/chat-templates.md); the rest is refused when the template is
// read, with its line.
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

// Immutable, and cheap to copy. All functions may be called from several threads at once.
class ChatTemplate {
 public:
  // The template of a checkpoint: chat_template.jinja, else "chat_template" of tokenizer_config.json,
  // which may be several with names. `asked_for`: a file that holds one instead, or the name of one of
  // several; empty: the one named "default", and "tool_use" where there are tools. Nothing if the checkpoint
  // has none. Throws
  //   Error(kNotFound)     no such file, and no template of that name
  //   Error(kCorruptFile)  no Jinja; Error(kUnsupported) Jinja that attend does not read. With file and line.
  static std::optional<ChatTemplate> find(const Checkpoint& checkpoint, const std::string& asked_for = {});
  // The same of open_checkpoint(path).
  static std::optional<ChatTemplate> find(const std::filesystem::path& path,
                                          const std::string& asked_for = {});

  // The Jinja of all its templates.
  const std::string& source() const;

  // What a render makes: text of the template, in which special tokens count, and text that came from a user,
  // in which they do not.
  struct Part {
    std::string text;
    bool from_user = false;
  };

  // `variables`: a JSON object, all of which the template sees: "messages", perhaps "tools" and what this
  // template has of its own. Contents that are lists of texts become one text where the template knows texts
  // alone, and arguments of tool calls become objects. `add_generation_prompt`: the text ends where the
  // assistant begins to speak. Throws Error(kInvalidArgument) when the template refuses the conversation, or
  // fails on it.
  std::vector<Part> render(std::string_view variables, bool add_generation_prompt = true,
                           std::time_t now = std::time(nullptr)) const;

  // The token ids of what render() gives. The template says what stands first, so that nothing is put around
  // it.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view variables,
                              bool add_generation_prompt = true, std::time_t now = std::time(nullptr)) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace attend
#pragma GCC visibility pop
