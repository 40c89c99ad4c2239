#include "attend/serve/protocols/tokenization.h"

#include <vector>

#include "attend/serve/json/json_text.h"

namespace attend::serve {

TextToTokenize read_text_to_tokenize(const Fields& fields, const char* or_else) {
  TextToTokenize read;
  for (const char* key : {"prompt", "text", "content"})
    if (auto text = fields.string(key)) {
      if (*read.param) reject(key, key, ": ", read.param, " already has the text");
      read.param = key;
      read.text = std::move(*text);
    }
  if (!*read.param) reject("prompt", "prompt: missing; expected a string", or_else);
  // llama-server adds special tokens only if it is requested.
  const bool is_llama = read.param == std::string_view("content");
  read.add_special_tokens =
      fields.boolean("add_special").value_or(fields.boolean("add_special_tokens").value_or(!is_llama));
  if (!fields.boolean("parse_special").value_or(true))
    reject_unsupported("parse_special", "special tokens of the text are always recognized; expected true");
  if (fields.boolean("with_pieces").value_or(false))
    reject_unsupported("with_pieces", "not supported; use return_token_strs");
  return read;
}

std::string tokenize_reply(const Fields& fields, const Tokenizer& tokenizer, std::span<const int32_t> ids,
                           int max_model_len) {
  JsonText json;
  json.begin_object().key("tokens").begin_array();
  for (const int32_t id : ids) json.integer(id);
  json.end_array().key("count").integer(std::ssize(ids)).key("max_model_len").integer(max_model_len);
  json.key("token_strs");
  if (fields.boolean("return_token_strs").value_or(false)) {
    json.begin_array();
    for (const int32_t id : ids) json.text(tokenizer.token(id));
    json.end_array();
  } else {
    json.null();
  }
  return json.end_object().take();
}

std::string detokenize_reply(const Fields& fields, const Tokenizer& tokenizer, int vocab_size) {
  if (!fields.has("tokens")) reject("tokens", "tokens: missing; expected a list of token ids");
  const std::vector<int32_t> ids = fields.token_ids("tokens");
  for (const int32_t id : ids)
    if (id >= vocab_size)
      reject("tokens", "tokens holds ", id, ": expected token ids, 0 to ", vocab_size - 1);
  const std::string text = tokenizer.decode(ids, fields.boolean("skip_special_tokens").value_or(true));
  JsonText json;
  json.begin_object();
  for (const char* key : {"prompt", "text", "content"}) json.key(key).text(text);
  return json.end_object().take();
}

}  // namespace attend::serve
