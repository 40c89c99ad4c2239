#include "attend/serve/protocols/pooling/embedding_job.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <iterator>

#include "attend/serve/json/base64.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/fields/request_fields.h"

namespace attend::serve {
namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's limit

void add_base64(const std::vector<float>& vector, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  append_base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)}, out);
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

}  // namespace

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

EmbeddingJob read_embedding(const Json& body, int dimensions) {
  const Fields fields(body);
  EmbeddingJob job;
  job.model = fields.string("model").value_or("");
  job.inputs = read_inputs(fields.find("input"));
  const std::string format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    reject("encoding_format", "encoding_format ", excerpt(format), ": expected \"float\" or \"base64\"");
  job.base64 = format == "base64";
  if (const auto wanted = fields.integer("dimensions", 1, dimensions))
    job.dimensions = static_cast<int>(*wanted);
  job.truncate = read_truncation(fields);
  job.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  reject_unsupported_fields(fields);
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
