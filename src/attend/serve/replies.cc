#include "attend/serve/replies.h"

#include <algorithm>

namespace attend::serve {
namespace {

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string_view object_name(Door door, bool chunk) {
  if (door == Door::kCompletions) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

Json usage_of(const std::vector<Choice>& choices, int n) {
  int64_t prompt = 0, completion = 0, cached = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    completion += static_cast<int64_t>(choices[i].token_ids.size());
    // A prompt counts once, however often it is completed.
    if (i % static_cast<size_t>(n) != 0) continue;
    prompt += choices[i].num_prompt_tokens;
    cached += choices[i].num_cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json finish_reason_of(const Choice& choice) {
  if (choice.finish_reason == FinishReason::kNone) return nullptr;
  return to_string(choice.finish_reason);
}

// What stopped it, as SGLang tells it.
Json matched_stop_of(const Choice& choice) {
  if (!choice.matched_stop.empty()) return choice.matched_stop;
  if (choice.matched_token) return *choice.matched_token;
  return nullptr;
}

Json native_finish_reason(const Choice& choice) {
  switch (choice.finish_reason) {
    case FinishReason::kNone:
      return nullptr;
    case FinishReason::kStop:
      return {{"type", "stop"}, {"matched", matched_stop_of(choice)}};
    case FinishReason::kLength:
      return {{"type", "length"}, {"length", choice.token_ids.size()}};
    default:
      return {{"type", "abort"},
              {"message", choice.message},
              {"status_code", choice.finish_reason == FinishReason::kError ? 500 : 400}};
  }
}

// From token `first` on; null where none were asked for.
Json logprobs_of(Door door, const Choice& choice, const GenerationJob& job, size_t first) {
  if (!job.params.logprobs) return nullptr;
  const auto shown_logprob = [](const ShownToken& token) {
    return token.logprob ? Json(*token.logprob) : Json(nullptr);
  };
  if (door == Door::kChat) {
    const auto entry = [](const std::string& text, const Json& logprob) {
      return Json{
          {"token", text}, {"bytes", std::vector<uint8_t>(text.begin(), text.end())}, {"logprob", logprob}};
    };
    Json content = Json::array();
    for (size_t i = first; i < choice.logprobs.size(); ++i) {
      const ShownToken& token = choice.logprobs[i];
      Json one = entry(token.text, shown_logprob(token));
      one["top_logprobs"] = Json::array();
      for (const LikelyToken& top : token.top) one["top_logprobs"].push_back(entry(top.text, top.logprob));
      content.push_back(std::move(one));
    }
    return {{"content", content}, {"refusal", nullptr}};
  }
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  size_t offset = 0;
  for (size_t i = 0; i < choice.logprobs.size(); ++i) {
    const ShownToken& token = choice.logprobs[i];
    if (i >= first) {
      tokens.push_back(token.text);
      logprobs.push_back(shown_logprob(token));
      Json top = token.logprob ? Json(Json::object()) : Json(nullptr);
      for (const LikelyToken& likely : token.top) top[likely.text] = likely.logprob;
      tops.push_back(std::move(top));
      offsets.push_back(offset);
    }
    offset += token.text.size();
  }
  return {{"text_offset", offsets}, {"token_logprobs", logprobs}, {"tokens", tokens}, {"top_logprobs", tops}};
}

// As SGLang has them: [logprob, id, text or null] for each token, and lists of these for the likeliest. The
// first of a prompt has none.
void add_native_logprobs(const Choice& choice, const GenerationJob& job, Json& meta) {
  if (!job.params.logprobs) return;
  const auto triple = [&](const Json& logprob, int32_t id, const std::string& text) {
    return Json::array({logprob, id, job.logprob_text ? Json(text) : Json(nullptr)});
  };
  const auto add = [&](const std::string& which, size_t first, size_t last, bool of_prompt) {
    Json tokens = Json::array(), tops = Json::array();
    for (size_t i = first; i < last; ++i) {
      const ShownToken& token = choice.logprobs[i];
      const bool known = token.logprob && !(of_prompt && i == first);
      tokens.push_back(triple(known ? Json(*token.logprob) : Json(nullptr), token.id, token.text));
      Json top = known ? Json(Json::array()) : Json(nullptr);
      for (const LikelyToken& likely : token.top)
        if (known) top.push_back(triple(likely.logprob, likely.id, likely.text));
      tops.push_back(std::move(top));
    }
    meta[which + "_token_logprobs"] = std::move(tokens);
    if (*job.params.logprobs > 0) meta[which + "_top_logprobs"] = std::move(tops);
  };
  const size_t num_prompt = choice.num_prompt_logprobs;
  const auto start = static_cast<size_t>(job.logprob_start.value_or(0));
  add("input", std::min(start, num_prompt), num_prompt, true);
  add("output", num_prompt, choice.logprobs.size(), false);
}

Json native_reply(const ReplyHead& head, const Choice& choice, size_t index, const GenerationJob& job) {
  const bool several = job.prompts.size() * static_cast<size_t>(job.params.n) > 1;
  const std::string id = several ? head.id + "-" + std::to_string(index) : head.id;
  Json reply = {{"text", choice.text},
                {"output_ids", choice.token_ids},
                {"meta_info",
                 {{"id", id},
                  {"finish_reason", native_finish_reason(choice)},
                  {"prompt_tokens", choice.num_prompt_tokens},
                  {"completion_tokens", choice.token_ids.size()},
                  {"cached_tokens", choice.num_cached_tokens},
                  {"e2e_latency", choice.seconds}}}};
  add_native_logprobs(choice, job, reply["meta_info"]);
  if (several && job.stream) reply["index"] = index;
  return reply;
}

Json base_of(const ReplyHead& head, bool chunk) {
  return {{"id", head.id},
          {"object", object_name(head.door, chunk)},
          {"created", head.created},
          {"model", head.model}};
}

// Into a JSON string. What needs no escapes, and that is most, is copied.
void append_quoted(std::string_view text, std::string& json) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain)) {
    json += dumped(text);
    return;
  }
  ((json += '"') += text) += '"';
}

// A chunk of text and nothing else, as each token of each stream is one: by hand, since a Json costs as much
// as all else that HTTP does for a token.
std::string plain_chunk(const ReplyHead& head, size_t index, std::string_view text, bool first) {
  std::string json;
  json.reserve(256 + text.size());
  json += "{\"id\":";
  append_quoted(head.id, json);
  json += ",\"object\":";
  append_quoted(object_name(head.door, true), json);
  json += ",\"created\":";
  json += std::to_string(head.created);
  json += ",\"model\":";
  append_quoted(head.model, json);
  json += ",\"choices\":[{\"index\":";
  json += std::to_string(index);
  if (head.door == Door::kChat)
    json += first ? R"(,"delta":{"role":"assistant","content":)" : R"(,"delta":{"content":)";
  else
    json += ",\"text\":";
  append_quoted(text, json);
  if (head.door == Door::kChat) json += '}';
  json += R"(,"logprobs":null,"finish_reason":null}]})";
  return json;
}

std::string chunk_with(const ReplyHead& head, Json choice, const Choice& state, const GenerationJob& job) {
  Json chunk = base_of(head, true);
  chunk["choices"] = Json::array({std::move(choice)});
  if (job.continuous_usage) chunk["usage"] = usage_of({state}, 1);
  return dumped(chunk);
}

}  // namespace

std::string whole_reply(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices) {
  if (head.door == Door::kGenerate) {
    Json all = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) all.push_back(native_reply(head, choices[i], i, job));
    return dumped(job.is_batch || job.params.n > 1 ? all : all.front());
  }
  Json reply = base_of(head, false);
  Json& list = reply["choices"] = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    if (head.door == Door::kChat)
      choice["message"] = {{"role", "assistant"}, {"content", choices[i].text}};
    else
      choice["text"] = choices[i].text;
    choice["logprobs"] = logprobs_of(head.door, choices[i], job, 0);
    choice["finish_reason"] = finish_reason_of(choices[i]);
    choice["matched_stop"] = matched_stop_of(choices[i]);
    list.push_back(std::move(choice));
  }
  reply["usage"] = usage_of(choices, job.params.n);
  return dumped(reply);
}

std::string text_chunk(const ReplyHead& head, size_t index, const Choice& choice, std::string_view text,
                       bool first, const GenerationJob& job) {
  if (head.door == Door::kGenerate) return dumped(native_reply(head, choice, index, job));
  if (!job.params.logprobs && !job.continuous_usage) return plain_chunk(head, index, text, first);
  Json part = {{"index", index}};
  if (head.door == Door::kChat) {
    Json& delta = part["delta"] = Json::object();
    if (first) delta["role"] = "assistant";
    delta["content"] = text;
  } else {
    part["text"] = text;
  }
  part["logprobs"] = logprobs_of(head.door, choice, job, choice.num_logprobs_sent);
  part["finish_reason"] = nullptr;
  return chunk_with(head, std::move(part), choice, job);
}

std::string finish_chunk(const ReplyHead& head, size_t index, const Choice& choice,
                         const GenerationJob& job) {
  if (head.door == Door::kGenerate) return dumped(native_reply(head, choice, index, job));
  Json part = {{"index", index}};
  if (head.door == Door::kChat)
    part["delta"] = Json::object();
  else
    part["text"] = "";
  part["logprobs"] = nullptr;
  part["finish_reason"] = finish_reason_of(choice);
  part["matched_stop"] = matched_stop_of(choice);
  return chunk_with(head, std::move(part), choice, job);
}

std::string usage_chunk(const ReplyHead& head, const GenerationJob& job, const std::vector<Choice>& choices) {
  Json chunk = base_of(head, true);
  chunk["choices"] = Json::array();
  chunk["usage"] = usage_of(choices, job.params.n);
  return dumped(chunk);
}

std::string error_reply(const ApiError& error) {
  const auto type = [&]() -> std::string_view {
    if (error.status == 401 || error.status == 403) return "authentication_error";
    if (error.status == 404) return "not_found_error";
    if (error.status == 503) return "overloaded_error";
    return error.status >= 500 ? "internal_error" : "invalid_request_error";
  };
  Json inner = {{"message", error.message}, {"type", type()}, {"param", nullptr}, {"code", nullptr}};
  if (!error.param.empty()) inner["param"] = error.param;
  if (!error.code.empty()) inner["code"] = error.code;
  return dumped({{"error", inner}});
}

std::string event(std::string_view json) {
  std::string line = "data: ";
  line += json;
  line += "\n\n";
  return line;
}

}  // namespace attend::serve
