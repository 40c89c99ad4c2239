#include "attend/serve/protocols/reply_writer.h"

#include "attend/serve/protocols/errors.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::serve {
namespace {

// `token`: a ShownToken or a LikelyToken.
template <class Token>
void add_fields(const Token& token, JsonText& json) {
  json.key("token").text(token.text).key("bytes").begin_array();
  for (const char byte : token.bytes.value_or(token.text)) json.integer(static_cast<unsigned char>(byte));
  json.end_array().key("logprob");
  add_logprob(token.logprob, json);
}

}  // namespace

size_t num_chars(const ShownToken& token) {
  return token.num_chars.value_or(tokenizer::num_chars(token.text));
}

void Choice::count_logprobs_as_sent() {
  for (; num_logprobs_sent < logprobs.size(); ++num_logprobs_sent)
    num_chars_sent += num_chars(logprobs[num_logprobs_sent]);
}

std::string event(std::string_view json) {
  std::string line("data: ");
  line += json;
  line += "\n\n";
  return line;
}

std::string event(std::string_view name, std::string_view json) {
  std::string lines("event: ");
  lines += name;
  lines += '\n';
  lines += event(json);
  return lines;
}

// The request causes an error of its grammar's masks.
ApiError failure_of(const Choice& choice, const GenerationJob& job) {
  const bool is_own = choice.error_code == ErrorCode::kInvalidArgument;
  const std::string param = is_own && job.grammar ? job.grammar->param : "";
  return {http_status(choice.error_code), choice.message, param, "generation_failed"};
}

void add_matched_stop(const Choice& choice, JsonText& json) {
  if (!choice.matched_stop.empty())
    json.text(choice.matched_stop);
  else if (choice.matched_token)
    json.integer(*choice.matched_token);
  else
    json.null();
}

void add_token(const ShownToken& token, JsonText& json) {
  json.begin_object();
  add_fields(token, json);
  json.key("top_logprobs").begin_array();
  for (const LikelyToken& top : token.top) {
    json.begin_object();
    add_fields(top, json);
    json.end_object();
  }
  json.end_array().end_object();
}

void add_cache_miss(const Choice& choice, JsonText& json) {
  if (!choice.cache_miss) return;
  json.key("cache_miss").begin_object().key("position").integer(choice.cache_miss->position);
  json.key("before").text(choice.cache_miss->before).key("after").text(choice.cache_miss->after).end_object();
}

void add_logprob(const std::optional<float>& logprob, JsonText& json) {
  logprob ? json.number(*logprob) : json.null();
}

void ReplyWriter::add_failure(const ApiError& error, std::string& events) {
  events += event(error_reply(error));
  events += kLastEvent;
}

}  // namespace attend::serve
