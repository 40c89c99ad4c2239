// Fields and replies of /tokenize and /detokenize, in the formats of vLLM, SGLang and llama-server.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "attend/serve/json/fields.h"
#include "attend/text/tokenizer/tokenizer.h"

namespace attend::serve {

struct TextToTokenize {
  const char* param = "";  // field that has the text
  std::string text;
  bool add_special_tokens = true;
};

// Reads prompt (vLLM), text, or content (llama-server), and how it is tokenized. Throws ApiError that names
// the field. `or_else`: further fields that may have a text, for the error.
TextToTokenize read_text_to_tokenize(const Fields& fields, const char* or_else = "");

// Returns {"tokens", "count", "max_model_len"}, with "token_strs" if return_token_strs is true.
std::string tokenize_reply(const Fields& fields, const Tokenizer& tokenizer, std::span<const int32_t> ids,
                           int max_model_len);

// Reads tokens, all below `vocab_size`, and returns their text under the names of all APIs.
std::string detokenize_reply(const Fields& fields, const Tokenizer& tokenizer, int vocab_size);

}  // namespace attend::serve
