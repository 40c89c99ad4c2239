#include "attend/serve/protocols/fields/foreign_fields.h"

#include <string_view>

namespace attend::serve {
namespace {

constexpr const char* kNoAdapters = "not supported; use model, with the name of an adapter";
constexpr const char* kNoImages = "images are not supported";
constexpr const char* kNoSound = "sound is not supported";
constexpr const char* kOnlyChat = "only in /v1/chat/completions";
constexpr const char* kOnlyReasoning = "only in /v1/chat/completions and /v1/responses";
constexpr const char* kOnlyCompletions = "only in /v1/completions";
constexpr const char* kOnlyGenerate = "only in /generate";
constexpr const char* kOneProcess = "not supported; the server is a single process";
constexpr const char* kNoSamplers =
    "not supported; sampling has temperature, top_k, top_p, min_p and penalties";

constexpr RefusedField kUnsupported[] = {
    // Fields of another endpoint of this server.
    {"messages", kOnlyChat},
    {"tools", kOnlyChat},
    {"tool_choice", kOnlyChat, R"("none")"},
    {"parallel_tool_calls", kOnlyChat, "true"},
    {"separate_reasoning", kOnlyChat, "true"},
    {"continue_final_message", kOnlyChat},
    {"add_generation_prompt", kOnlyChat},
    {"chat_template_kwargs", kOnlyChat},
    {"documents", kOnlyChat},
    {"reasoning_effort", kOnlyChat},
    {"reasoning", "only in /v1/chat/completions and /v1/responses"},
    {"thinking", "only in /v1/chat/completions and /v1/messages"},
    {"enable_thinking", kOnlyChat, "null"},
    {"thinking_budget", kOnlyReasoning, "-1"},
    {"thinking_token_budget", kOnlyReasoning, "-1"},
    {"max_thinking_tokens", kOnlyReasoning, "-1"},
    {"reasoning_budget", kOnlyReasoning, "-1"},
    {"verbosity", kOnlyChat},
    {"top_logprobs", "only in /v1/chat/completions; use logprobs or, in /generate, top_logprobs_num"},
    {"prompt", kOnlyCompletions},
    {"echo", kOnlyCompletions},
    {"best_of", "only in /v1/chat/completions and /v1/completions; use n", "1"},
    {"stream_options", "only in /v1/chat/completions and /v1/completions"},
    {"response_format", "only for generated text"},
    {"logprobs", "only in /v1/chat/completions and /v1/completions; use return_logprob"},
    {"text", kOnlyGenerate},
    {"input_ids", kOnlyGenerate},
    {"sampling_params", "only in /generate; elsewhere, its fields are part of the body"},
    {"return_logprob", "only in /generate; use logprobs"},
    {"logprob_start_len", "only in /generate; use echo with logprobs", "-1"},
    {"top_logprobs_num", "only in /generate; use top_logprobs or, in /v1/completions, logprobs"},
    {"return_text_in_logprobs", "only in /generate; other endpoints return it always"},
    {"detokenize", "only in /generate, whose replies have output_ids", "true"},
    {"add_special_tokens", "the chat template writes the special tokens"},
    {"encoding_format", "only in /v1/embeddings"},
    {"dimensions", "only in /v1/embeddings"},

    // OpenAI's API.
    {"suffix", "not supported; expected none"},
    {"functions", "replaced by tools in OpenAI's API; send tools"},
    {"function_call", "replaced by tool_choice in OpenAI's API; send tool_choice"},
    {"modalities", R"(only ["text"] is supported)", R"(["text"])"},
    {"audio", kNoSound},
    {"web_search_options", "not supported"},
    {"moderation", "not supported"},

    // vLLM's API.
    {"bad_words", "not supported; use logit_bias"},
    {"allowed_token_ids", "not supported; use logit_bias"},
    {"logits_processors", "not supported"},
    {"use_beam_search", "not supported"},
    {"prompt_logprobs", "not supported; use /generate with logprob_start_len, or echo with logprobs", "null"},
    {"prompt_embeds", "not supported"},
    {"logprob_token_ids", "not supported"},
    {"return_token_ids", "not supported; /generate returns output_ids"},
    {"return_tokens_as_token_ids", "not supported; /generate returns ids of tokens with logprobs"},
    {"include_reasoning", "not supported; use separate_reasoning", "true"},
    {"chat_template", "not supported; start the server with --chat-template"},
    {"truncation_side", "not supported; prompts keep their last tokens, embedding inputs their first",
     "null"},
    {"guided_decoding_backend", "not supported"},
    {"guided_whitespace_pattern", "not supported"},
    {"repetition_detection", "not supported"},
    {"kv_transfer_params", kOneProcess},
    {"vllm_xargs", "not supported"},
    {"media_io_kwargs", kNoImages},
    {"mm_processor_kwargs", kNoImages},
    {"normalize", "not supported; the model's modules define it", "null"},
    {"use_activation", "not supported; the model's modules define it", "null"},
    {"lora_request", kNoAdapters},

    // SGLang's API.
    {"stop_regex", "not supported; use stop"},
    {"custom_logit_processor", "not supported"},
    {"custom_params", "not supported"},
    {"beam_width", "not supported", "1"},
    {"watermark", "not supported"},
    {"stream_interval", "not supported; each step sends an event", "1"},
    {"stream_reasoning", "not supported; reasoning is streamed", "true"},
    {"task", "not supported"},
    {"token_ids_logprob", "not supported"},
    {"return_hidden_states", "not supported"},
    {"return_routed_experts", "not supported"},
    {"routed_experts_start_len", "not supported"},
    {"return_indexer_topk", "not supported"},
    {"return_cached_tokens_details", "not supported; usage has cached_tokens"},
    {"return_spec_tokens_details", "not supported; /generate returns counts of drafts"},
    {"return_prompt_token_ids", "not supported; use /tokenize"},
    {"return_meta_info", "not supported; use /generate"},
    {"return_input_ids_in_sglext", "not supported; use /tokenize"},
    {"return_output_ids_in_sglext", "not supported; /generate returns output_ids"},
    {"return_sampling_mask", "not supported"},
    {"return_entropy", "not supported"},
    {"return_bytes", "not supported; logprobs of a chat have bytes"},
    {"sampling_logprobs_mode", "not supported; logprobs are the model's"},
    {"return_flat_raw_top_logprobs", "not supported; use top_logprobs_num"},
    {"return_flat_raw_output_top_logprobs", "not supported; use top_logprobs_num"},
    {"return_flat_raw_top_logprobs_b64", "not supported; use top_logprobs_num"},
    {"ebnf_full_assistant", "not supported"},
    {"require_reasoning", "not supported"},
    {"background", "not supported"},
    {"lora_path", "not supported by this endpoint"},
    {"lora_id", kNoAdapters},
    {"input_embeds", "not supported"},
    {"positional_embed_overrides", "not supported"},
    {"embed_overrides", "not supported"},
    {"embed_override_token_id", "not supported", "null"},
    {"token_indices_to_pool", "not supported"},
    {"multi_item_delimiter_indices", "not supported"},
    {"session_params", "not supported; requests with a common prefix share it"},
    {"session_id", "not supported; requests with a common prefix share it"},
    {"image_data", kNoImages},
    {"images_config", kNoImages},
    {"image_max_dynamic_patch", kNoImages},
    {"max_dynamic_patch", kNoImages},
    {"min_dynamic_patch", kNoImages},
    {"mm_hashes", kNoImages},
    {"mm_content_hashes", kNoImages},
    {"encoder_urls", kNoImages},
    {"video_data", "videos are not supported"},
    {"video_config", "videos are not supported"},
    {"video_max_dynamic_patch", "videos are not supported"},
    {"audio_data", kNoSound},
    {"use_audio_in_video", kNoSound},
    {"bootstrap_host", kOneProcess},
    {"bootstrap_port", kOneProcess},
    {"bootstrap_room", kOneProcess},
    {"bootstrap_pair_key", kOneProcess},
    {"decode_tp_size", kOneProcess},
    {"data_parallel_rank", kOneProcess},
    {"routed_dp_rank", kOneProcess},
    {"disagg_prefill_dp_rank", kOneProcess},
    {"kv_hints", kOneProcess},

    // llama-server's API.
    {"mirostat", kNoSamplers},
    {"dynatemp_range", kNoSamplers},
    {"xtc_probability", kNoSamplers},
    {"dry_multiplier", kNoSamplers},
    {"typical_p", kNoSamplers, "1"},
    {"top_n_sigma", kNoSamplers, "-1"},
    {"min_keep", kNoSamplers},
    {"samplers", kNoSamplers},
    {"n_probs", "not supported; use logprobs or, in /generate, top_logprobs_num"},
    {"post_sampling_probs", "not supported; logprobs are the model's"},
    {"n_indent", "not supported"},
    {"t_max_predict_ms", "not supported; use max_tokens", "-1"},
    {"id_slot", "not supported; requests with a common prefix share it", "-1"},
    {"cache_prompt", "not supported; use cache_salt for a prefix of its own", "true"},
    {"return_tokens", "not supported; /generate returns output_ids"},
    {"timings_per_token", "not supported"},
    {"return_progress", "not supported"},
    {"response_fields", "not supported"},
    {"grammar_lazy", "not supported; use structural_tag"},
    {"grammar_triggers", "not supported; use structural_tag"},
    {"reasoning_format", "not supported; use separate_reasoning", R"("auto")"},
    {"thinking_forced_open", "not supported"},
    {"parse_tool_calls", "not supported; use tool_choice \"none\"", "true"},
    {"lora", kNoAdapters},
};

constexpr const char* kWithoutEffect[] = {
    // Notes for logs, billing and scheduling of other servers.
    "user", "store", "metadata", "service_tier", "prediction", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options", "log_metrics", "no_logs", "custom_labels",
    "routing_key", "conversation_id", "external_trace_header", "received_time", "http_worker_ipc",
    // Parameters of features that are rejected, or that attend does not need.
    "spaces_between_special_tokens", "length_penalty", "n_keep", "n_discard", "dynatemp_exponent", "dry_base",
    "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "xtc_threshold", "mirostat_tau",
    "mirostat_eta", "need_wait_for_mm_inputs", "num_items_assigned",
    // Fields of generation, sent for embeddings.
    "rid", "request_id", "priority"};

// Returns true for values that request the default.
bool is_neutral(const Json& value, const RefusedField& field) {
  if (!std::string_view(field.neutral).empty()) return value == Json::parse(field.neutral);
  if (value.is_boolean()) return value == false;
  if (value.is_number()) return value == 0;
  return value.is_string() ? value == "" : value.empty();
}

}  // namespace

std::span<const RefusedField> unsupported_fields() { return kUnsupported; }

std::span<const char* const> fields_without_effect() { return kWithoutEffect; }

void reject_fields(const Fields& fields, std::span<const RefusedField> refused) {
  for (const RefusedField& field : refused)
    if (const Json* value = fields.find(field.key); value && !is_neutral(*value, field))
      reject_unsupported(fields.name(field.key), field.why);
}

void reject_unsupported_fields(const Fields& fields) {
  for (const RefusedField& field : kUnsupported)
    if (!fields.has_read(field.key)) reject_fields(fields, {&field, 1});
  for (const char* key : kWithoutEffect) fields.find(key);
}

}  // namespace attend::serve
