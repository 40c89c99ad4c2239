#include "attend/serve/protocols/embedding_job.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace attend::serve {
namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's limit

void add_base64(const std::vector<float>& vector, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* const bytes = reinterpret_cast<const unsigned char*>(vector.data());
  const size_t num_bytes = vector.size() * sizeof(float);
  for (size_t i = 0; i < num_bytes; i += 3) {
    const auto byte = [&](size_t at) { return at < num_bytes ? uint32_t{bytes[at]} : 0u; };
    const uint32_t group = byte(i) << 16 | byte(i + 1) << 8 | byte(i + 2);
    for (size_t digit = 0; digit < 4; ++digit)
      out += i + digit > num_bytes ? '=' : kDigits[group >> (18 - 6 * digit) & 63];
  }
}

// Appends the shortest digits that parse to the same float32, or null for values that JSON cannot represent.
void add_numbers(const std::vector<float>& vector, std::string& out) {
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) out += ',';
    if (std::isfinite(vector[i]))
      fmt::format_to(std::back_inserter(out), "{}", vector[i]);
    else
      out += "null";
  }
}

std::vector<PromptInput> read_inputs(const Json* input) {
  constexpr std::string_view kExpected = "a string, token ids, or a list of 1 to ";
  if (!input) reject("input", "input: missing; expected ", kExpected, kMaxInputs, " of these");
  std::vector<PromptInput> inputs;
  if (input->is_string()) {
    inputs.emplace_back(input->get<std::string>());
  } else if (input->is_array() && !input->empty() && input->front().is_number()) {
    inputs.emplace_back(read_token_ids(*input, "input"));
  } else if (input->is_array() && input->size() <= kMaxInputs) {
    for (const Json& item : *input) {
      if (item.is_string())
        inputs.emplace_back(item.get<std::string>());
      else
        inputs.emplace_back(read_token_ids(item, "input"));
    }
  }
  if (inputs.empty())
    reject("input", "input ", excerpt(*input), ": expected ", kExpected, kMaxInputs, " of these");
  return inputs;
}

}  // namespace

EmbeddingJob read_embedding(const Json& body, int dimensions) {
  const Fields fields(body);
  EmbeddingJob job;
  job.model = fields.string("model").value_or("");
  job.inputs = read_inputs(fields.find("input"));
  const std::string format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    reject("encoding_format", "encoding_format \"", format, "\": expected \"float\" or \"base64\"");
  job.base64 = format == "base64";
  if (const auto wanted = fields.integer("dimensions", 1, dimensions))
    job.dimensions = static_cast<int>(*wanted);
  if (fields.has("truncate_prompt_tokens"))
    reject_unsupported("truncate_prompt_tokens", "not supported; a text that is too long is rejected");
  fields.string("user");  // accepted without effect
  job.ignored = fields.unknown();
  return job;
}

std::string embedding_reply(const std::vector<std::vector<float>>& vectors, bool base64, size_t num_tokens,
                            const std::string& model) {
  std::string text = R"({"object":"list","data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    text += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i > 0 ? "," : "", i);
    text += base64 ? '"' : '[';
    base64 ? add_base64(vectors[i], text) : add_numbers(vectors[i], text);
    text += base64 ? "\"}" : "]}";
  }
  const Json usage = {{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}};
  return text + R"(],"model":)" + Json(model).dump(-1, ' ', false, Json::error_handler_t::replace) +
         R"(,"usage":)" + usage.dump() + "}";
}

}  // namespace attend::serve
