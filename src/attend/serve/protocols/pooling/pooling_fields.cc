#include "attend/serve/protocols/pooling/pooling_fields.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "attend/base/error.h"

namespace attend::serve {

const Tokenizer& text_tokenizer(const PoolingModel& model, const std::string& field) {
  if (model.tokenizer == nullptr) reject_unsupported(field, "the model has no tokenizer; expected token ids");
  return *model.tokenizer;
}

int read_truncation(const Fields& fields, const EmbedderInfo& info) {
  const int longest = info.max_input_tokens;
  const auto limit = fields.integer("truncate_prompt_tokens", -1, longest);
  if (!limit) return 0;
  if (*limit == 0)
    reject("truncate_prompt_tokens", "truncate_prompt_tokens 0: expected 1 to ", longest,
           ", or -1 for the model's maximum");
  return *limit < 0 ? longest : static_cast<int>(*limit);
}

bool read_activation(const Fields& fields) {
  bool activate = true;
  for (const char* const name : {"softmax", "activation", "use_activation"})
    activate = fields.boolean(name).value_or(activate);
  return activate;
}

std::string read_text(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object())
    if (const auto text = value.find("text"); text != value.end() && text->is_string())
      return text->get<std::string>();
  reject(field, field, " ", excerpt(value), ": expected a string, or an object with a string \"text\"");
}

std::vector<std::string> read_texts(const Json& value, const std::string& field) {
  if (!value.is_array()) return {read_text(value, field)};
  if (value.empty() || value.size() > kMaxPoolingInputs)
    reject(field, field, ": ", value.size(), " texts: expected 1 to ", kMaxPoolingInputs);
  std::vector<std::string> texts;
  for (size_t i = 0; i < value.size(); ++i)
    texts.push_back(read_text(value[i], fmt::format("{}[{}]", field, i)));
  return texts;
}

void read_unused(const Fields& fields) {
  for (const char* const name : {"user", "priority"}) fields.find(name);
}

ScoreInputs encode_request_pairs(const PoolingModel& model, const Fields& fields,
                                 std::span<const std::string> firsts, std::span<const std::string> seconds,
                                 PairOptions options) {
  constexpr std::string_view kInstruction = "instruction", kQuery = "query";
  std::string given(kInstruction);
  for (const char* const name : {"instruct", "instruction"})  // SGLang's name, and vLLM's
    if (const auto instruction = fields.string(name)) options.instruction = *instruction, given = name;
  try {
    return encode_pairs(model.info, *model.tokenizer, firsts, seconds, options);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    const std::string code(to_string(error.code()));
    if (message.starts_with(kInstruction))
      throw ApiError{400, given + std::string(message.substr(kInstruction.size())), given, code};
    if (message.starts_with(kQuery)) throw ApiError{400, std::string(message), std::string(kQuery), code};
    throw;
  }
}

void add_pooling_usage(JsonText& json, size_t num_tokens) {
  const auto count = static_cast<int64_t>(num_tokens);
  json.key("usage").begin_object().key("prompt_tokens").integer(count);
  json.key("total_tokens").integer(count).end_object();
}

std::string describe(const EmbedderInfo& info) {
  if (!info.classifier)
    return fmt::format("{} returns embeddings of size {} and has no classification head", info.model,
                       info.dimensions);
  const size_t num_labels = info.classifier->labels.size();
  return fmt::format("{} returns scores of {} label{}", info.model, num_labels, num_labels == 1 ? "" : "s");
}

}  // namespace attend::serve
