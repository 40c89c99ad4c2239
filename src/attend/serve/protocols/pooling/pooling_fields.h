// Fields that several pooling endpoints have.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attend/engine/output/scoring.h"
#include "attend/serve/json/json_text.h"
#include "attend/serve/protocols/pooling/pooling_endpoint.h"

namespace attend::serve {

inline constexpr const char* kTruncationHint = "; truncate_prompt_tokens -1 truncates longer ones";
inline constexpr size_t kMaxPoolingInputs = 2048;  // OpenAI's and Jina's limit

// Throws ApiError for a model without a tokenizer.
const Tokenizer& text_tokenizer(const PoolingModel& model, const std::string& field);

// Reads truncate_prompt_tokens: 0: none; -1 in the request: the model's maximum.
int read_truncation(const Fields& fields, const EmbedderInfo& info);
// Reads use_activation, and the names that vLLM had for it: activation, softmax. False: scores are logits.
bool read_activation(const Fields& fields);
// Reads a text, or an object with a text.
std::string read_text(const Json& value, const std::string& field);
// Reads one of these, or a list of 1 to kMaxPoolingInputs of them.
std::vector<std::string> read_texts(const Json& value, const std::string& field);
// Reads the fields that have no effect: user, priority.
void read_unused(const Fields& fields);

// Encodes pairs with the fields' options (instruction, instruct).
ScoreInputs encode_request_pairs(const PoolingModel& model, const Fields& fields,
                                 std::span<const std::string> firsts, std::span<const std::string> seconds,
                                 PairOptions options);

// Appends "usage".
void add_pooling_usage(JsonText& json, size_t num_tokens);

// "BertModel, which returns embeddings of size 384": what a model is, for errors.
std::string describe(const EmbedderInfo& info);

}  // namespace attend::serve
