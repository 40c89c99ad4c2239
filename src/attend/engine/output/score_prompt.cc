#include "attend/engine/output/score_prompt.h"

#include <nlohmann/json.hpp>
#include <span>

#include "attend/base/error.h"

namespace attend {
namespace {

// Fixed texts of the prompt that Qwen3-Reranker was trained with.
constexpr std::string_view kQwen3Start =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: ";
constexpr std::string_view kQwen3Query = "\n<Query>: ";
constexpr std::string_view kQwen3Document = "\n<Document>: ";
constexpr std::string_view kQwen3End = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kQwen3Instruction =
    "Given a web search query, retrieve relevant passages that answer the query";

constexpr std::string_view kRenderedStart = "<|im_start|>";

bool names_role(const std::string& source, std::string_view role) {
  for (const char quote : {'"', '\''})
    if (source.find(quote + std::string(role) + quote) != std::string::npos) return true;
  return false;
}

}  // namespace

std::optional<ScorePrompt> ScorePrompt::find(const std::filesystem::path& model_path) {
  std::optional<ChatTemplate> chat = ChatTemplate::find(model_path);
  if (!chat || !names_role(chat->source(), "query") || !names_role(chat->source(), "document"))
    return std::nullopt;
  ScorePrompt prompt;
  prompt.template_ = std::move(chat);
  return prompt;
}

ScorePrompt ScorePrompt::qwen3() { return {}; }

// `texts` holds rendered texts that the parts refer to.
std::vector<Tokenizer::Part> ScorePrompt::render(std::string_view query, std::string_view document,
                                                 std::string_view instruction,
                                                 std::vector<std::string>& texts) const {
  if (query.starts_with(kRenderedStart)) return {{query, true}, {document, true}};
  if (!template_)
    return {{kQwen3Start, true},    {instruction.empty() ? kQwen3Instruction : instruction, false},
            {kQwen3Query, true},    {query, false},
            {kQwen3Document, true}, {document, false},
            {kQwen3End, true}};
  auto messages = nlohmann::ordered_json::array();
  const auto add = [&](const char* role, std::string_view content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  if (!instruction.empty()) add("system", instruction);
  add("query", query);
  add("document", document);
  const nlohmann::ordered_json variables = {{"messages", std::move(messages)}};
  std::vector<bool> from_user;
  for (ChatTemplate::Part& part : template_->render(variables.dump())) {
    texts.push_back(std::move(part.text));
    from_user.push_back(part.from_user);
  }
  std::vector<Tokenizer::Part> parts;
  for (size_t i = 0; i < texts.size(); ++i) parts.push_back({texts[i], !from_user[i]});
  return parts;
}

std::vector<int32_t> ScorePrompt::encode(const Tokenizer& tokenizer, std::string_view query,
                                         std::string_view document, std::string_view instruction,
                                         size_t max_tokens) const {
  const auto encode_all = [&](std::string_view shortened) {
    std::vector<std::string> texts;
    return tokenizer.encode(render(query, shortened, instruction, texts));
  };
  std::vector<int32_t> ids = encode_all(document);
  if (max_tokens == 0 || ids.size() <= max_tokens) return ids;
  const Tokenizer::Part whole{document, false};
  const std::vector<int32_t> document_ids = tokenizer.encode(std::span(&whole, 1));
  size_t num_kept = document_ids.size();
  while (ids.size() > max_tokens && num_kept > 0) {
    num_kept -= std::min(num_kept, ids.size() - max_tokens);
    ids = encode_all(tokenizer.decode_prefix(std::span(document_ids).first(num_kept)));
  }
  require(ids.size() <= max_tokens, "query of ", ids.size(), " tokens with its prompt: at most ", max_tokens);
  return ids;
}

}  // namespace attend
