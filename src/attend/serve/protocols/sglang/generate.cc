// Requests and replies of SGLang's /generate.
#include <algorithm>

#include "attend/serve/protocols/endpoint.h"
#include "attend/serve/protocols/errors.h"
#include "attend/serve/protocols/fields/foreign_fields.h"
#include "attend/serve/protocols/fields/request_fields.h"

namespace attend::serve {
namespace {

// A stream with logprobs sends an event when the number of logprobs has grown by 1 / kLogprobBatches. All
// events together have about 17 times the size of the last one.
constexpr size_t kLogprobBatches = 16;

void add_native_finish_reason(const Choice& choice, JsonText& json) {
  json.key("finish_reason");
  if (choice.finish_reason == FinishReason::kNone) {
    json.null();
    return;
  }
  json.begin_object().key("type");
  if (choice.finish_reason == FinishReason::kStop) {
    json.text("stop").key("matched");
    add_matched_stop(choice, json);
  } else if (choice.finish_reason == FinishReason::kLength) {
    json.text("length").key("length").integer(std::ssize(choice.token_ids));
  } else {
    json.text("abort").key("message").text(choice.message);
    json.key("status_code")
        .integer(choice.finish_reason == FinishReason::kError ? http_status(choice.error_code) : 400);
  }
  json.end_object();
}

// Writes SGLang's format: [logprob, id, text or null] for each token, and lists of these for the most likely
// tokens. The first prompt token has a null logprob.
void add_native_logprobs(const Choice& choice, const GenerationJob& job, JsonText& json) {
  if (!job.params.logprobs) return;
  const auto add_triple = [&](const std::optional<float>& logprob, int32_t id, std::string_view text) {
    json.begin_array();
    add_logprob(logprob, json);
    json.integer(id);
    job.logprob_text ? json.text(text) : json.null();
    json.end_array();
  };
  const auto add = [&](std::string_view tokens_key, std::string_view tops_key, size_t first, size_t last,
                       bool is_prompt) {
    const auto is_known = [&](size_t i) { return choice.logprobs[i].logprob && !(is_prompt && i == first); };
    json.key(tokens_key).begin_array();
    for (size_t i = first; i < last; ++i) {
      const ShownToken& token = choice.logprobs[i];
      add_triple(is_known(i) ? token.logprob : std::nullopt, token.id, token.text);
    }
    json.end_array();
    if (*job.params.logprobs == 0) return;
    json.key(tops_key).begin_array();
    for (size_t i = first; i < last; ++i) {
      if (!is_known(i)) {
        json.null();
        continue;
      }
      json.begin_array();
      for (const LikelyToken& likely : choice.logprobs[i].top)
        add_triple(likely.logprob, likely.id, likely.text);
      json.end_array();
    }
    json.end_array();
  };
  const size_t num_prompt = choice.num_prompt_logprobs;
  const size_t first = std::min(static_cast<size_t>(job.logprob_start.value_or(0)), num_prompt);
  const size_t num_sent = job.incremental ? choice.num_logprobs_sent : 0;
  add("input_token_logprobs", "input_top_logprobs", num_sent > 0 ? num_prompt : first, num_prompt, true);
  add("output_token_logprobs", "output_top_logprobs", std::max(num_sent, num_prompt), choice.logprobs.size(),
      false);
}

// Writes no counts without speculation, as SGLang.
void add_draft_counts(const DraftCounts& drafts, JsonText& json) {
  if (drafts.num_steps == 0) return;
  json.key("spec_verify_ct").integer(drafts.num_steps);
  json.key("spec_draft_token_num").integer(drafts.num_drafted);
  json.key("spec_accept_token_num").integer(drafts.num_accepted);
  json.key("spec_accept_length").number(drafts.accept_length());
  json.key("spec_accept_rate").number(drafts.accept_rate());
}

// Each event contains the complete text and all logprobs so far or, with --incremental-streaming-output,
// those that no event has contained yet.
class GenerateReplies final : public ReplyWriter {
 public:
  GenerateReplies(const ReplyHead& head, const GenerationJob& job) : head_(head), job_(job) {}

  std::string reply(std::span<const Choice> choices) const override {
    JsonText json;
    const bool is_list = job_.is_batch || job_.params.n > 1;
    if (is_list) json.begin_array();
    for (size_t i = 0; i < (is_list ? choices.size() : 1); ++i) add_reply(choices[i], i, json);
    if (is_list) json.end_array();
    return json.take();
  }

  void add_events(const Update& update, Choice& choice, std::string& events) override {
    const bool finished = choice.finish_reason != FinishReason::kNone;
    const size_t num_new = choice.logprobs.size() - choice.num_logprobs_sent;
    // One event per token would make the total size quadratic.
    const bool waits_for_more = job_.params.logprobs && !job_.incremental && !update.is_first &&
                                num_new < choice.num_logprobs_sent / kLogprobBatches;
    if ((update.is_first || !update.text.empty() || num_new > 0) && !finished && !waits_for_more) {
      add_event(choice, update.index, events);
      choice.count_logprobs_as_sent();
      choice.num_text_bytes_sent = choice.text.size();
      choice.num_ids_sent = choice.token_ids.size();
    }
    if (choice.finish_reason == FinishReason::kError)
      events += event(error_reply(failure_of(choice, job_)));
    else if (finished)
      add_event(choice, update.index, events);
  }

  void add_last_events(std::span<const Choice>, std::string& events) const override { events += kLastEvent; }

 private:
  void add_event(const Choice& choice, size_t index, std::string& events) const {
    JsonText json;
    add_reply(choice, index, json);
    events += event(json.take());
  }

  void add_reply(const Choice& choice, size_t index, JsonText& json) const {
    const bool several = job_.prompts.size() * static_cast<size_t>(job_.params.n) > 1;
    const size_t num_text_bytes = job_.incremental ? choice.num_text_bytes_sent : 0;
    const std::string_view text = std::string_view(choice.text).substr(num_text_bytes);
    json.begin_object().key("text").text(job_.detokenize ? text : "").key("output_ids").begin_array();
    for (size_t i = job_.incremental ? choice.num_ids_sent : 0; i < choice.token_ids.size(); ++i)
      json.integer(choice.token_ids[i]);
    json.end_array().key("meta_info").begin_object();
    json.key("id").text(several ? head_.id + "-" + std::to_string(index) : head_.id);
    add_native_finish_reason(choice, json);
    json.key("prompt_tokens").integer(choice.num_prompt_tokens);
    json.key("completion_tokens").integer(std::ssize(choice.token_ids));
    json.key("cached_tokens").integer(choice.num_cached_tokens);
    if (choice.num_host_cached_tokens + choice.num_disk_cached_tokens > 0) {
      const int num_below = choice.num_host_cached_tokens + choice.num_disk_cached_tokens;
      json.key("cached_tokens_details").begin_object();
      json.key("device").integer(choice.num_cached_tokens - num_below);
      json.key("host").integer(choice.num_host_cached_tokens);
      json.key("storage").integer(choice.num_disk_cached_tokens).end_object();
    }
    add_cache_miss(choice, json);
    json.key("e2e_latency").number(choice.seconds);
    add_draft_counts(choice.drafts, json);
    add_native_logprobs(choice, job_, json);
    json.end_object();
    if (several && job_.stream) json.key("index").integer(static_cast<int64_t>(index));
    json.end_object();
  }

  ReplyHead head_;
  const GenerationJob& job_;
};

void read_native_logprobs(const Fields& fields, GenerationJob& job) {
  const auto start = fields.integer("logprob_start_len", -1, INT32_MAX);
  const auto num_top = fields.integer("top_logprobs_num", 0, kMaxTopLogprobs);
  job.logprob_text = fields.boolean("return_text_in_logprobs").value_or(false);
  if (!fields.boolean("return_logprob").value_or(false)) {
    if (num_top.value_or(0) > 0)
      reject("top_logprobs_num", "top_logprobs_num: only with return_logprob true");
    return;
  }
  job.params.logprobs = static_cast<int>(num_top.value_or(0));
  if (start.value_or(-1) < 0) return;
  job.logprob_start = static_cast<int>(*start);
  job.params.prompt_logprobs = job.params.logprobs;
}

GenerationJob read_generate(const Json& body, const SamplingDefaults& defaults, const ChatFormats&) {
  const Fields fields(body);
  GenerationJob job;
  const Json none = Json::object();
  const Json* given = fields.find("sampling_params");
  if (given && given->is_array())
    reject_unsupported("sampling_params", "a list is not supported; expected an object");
  const Fields sampling(given ? *given : none, "sampling_params.");
  read_sampling(sampling, defaults, job);
  job.params.n = static_cast<int>(sampling.integer("n", 1, kMaxChoices).value_or(1));
  job.has_max_tokens = true;
  read_max_tokens(sampling, {"max_new_tokens"}, job);
  read_request(fields, job);
  // SGLang's benchmark client sends it here.
  if (const auto skip = fields.boolean("skip_special_tokens"); skip && !sampling.find("skip_special_tokens"))
    job.params.skip_special_tokens = *skip;
  job.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  job.detokenize = fields.boolean("detokenize").value_or(true);
  read_native_logprobs(fields, job);
  const Json* text = fields.find("text");
  const Json* ids = fields.find("input_ids");
  if (!text == !ids) reject(text ? "input_ids" : "text", "expected one of text and input_ids");
  if (text) {
    job.is_batch = text->is_array();
    for (std::string& prompt : fields.strings("text")) job.prompts.emplace_back(std::move(prompt));
  } else {
    job.is_batch = ids->is_array() && !ids->empty() && ids->front().is_array();
    if (!job.is_batch)
      job.prompts.emplace_back(read_token_ids(*ids, "input_ids"));
    else
      for (const Json& prompt : *ids) job.prompts.emplace_back(read_token_ids(prompt, "input_ids"));
  }
  if (job.prompts.empty() || job.prompts.size() > kMaxPrompts)
    reject(text ? "text" : "input_ids", text ? "text" : "input_ids", ": expected 1 to ", kMaxPrompts,
           " prompts");
  check_num_completions(job);
  for (const std::string& key : fields.unknown())
    if (sampling.has_read(key)) reject(key, key, ": expected in sampling_params");
  reject_unsupported_fields(fields);
  reject_unsupported_fields(sampling);
  job.ignored = fields.unknown();
  for (const std::string& key : sampling.unknown()) job.ignored.push_back(sampling.name(key));
  return job;
}

std::string generate_field(std::string_view param, bool is_text) {
  if (param == "prompt") return is_text ? "text" : "input_ids";
  if (param == "logprobs") return "top_logprobs_num";
  return "sampling_params." + std::string(param);
}

}  // namespace

constexpr Endpoint kGenerate = {
    .path = "/generate",
    .id_prefix = "",
    .has_own_ids = false,
    .read = read_generate,
    .client_field_name = generate_field,
    .shows_stop_token = true,
    .make_writer = [](const ReplyHead& head, const GenerationJob& job) -> std::unique_ptr<ReplyWriter> {
      return std::make_unique<GenerateReplies>(head, job);
    }};

}  // namespace attend::serve
