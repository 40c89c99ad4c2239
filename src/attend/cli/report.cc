#include "attend/cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "attend/base/log.h"
#include "attend/base/parallel.h"
#include "attend/base/printable.h"
#include "attend/cli/standard_streams.h"
#include "attend/kernels/common/cpu/isa.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxPromptChars = 160;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool right(const Prompt& prompt, std::string_view text) { return trim(text) == trim(*prompt.answer); }

// Returns "1 token" or "2 tokens".
std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

nlohmann::ordered_json timings(const Request& request) {
  const RequestTimes& times = request.times;
  const double decode_ms = milliseconds(times.first_token, times.finished);
  const int decoded = request.num_output() - 1;
  // A request that was never admitted waited until its end.
  const bool has_waited_only = times.admitted < times.submitted;
  return {{"queue_ms", milliseconds(times.submitted, has_waited_only ? times.finished : times.admitted)},
          {"time_to_first_token_ms", milliseconds(times.submitted, times.first_token)},
          {"decode_ms", decode_ms},
          {"total_ms", milliseconds(times.submitted, times.finished)},
          {"decode_tokens_per_second", decoded > 0 ? 1e3 * decoded / decode_ms : 0.0}};
}

nlohmann::ordered_json to_json(const LogprobsView& scored, size_t i, int32_t token_id) {
  nlohmann::ordered_json json = {{"token_id", token_id}, {"logprob", scored.logprobs[i]}};
  if (scored.num_top > 0) json["top"] = nlohmann::json::array();
  for (const TokenLogprob& top : scored.top(i))
    json["top"].push_back({{"token_id", top.token_id}, {"logprob", top.logprob}});
  return json;
}

// OpenAI's format: the first token of a prompt has no logprob.
nlohmann::ordered_json prompt_to_json(const LogprobsView& scored, const Request& request) {
  nlohmann::ordered_json json = {nullptr};
  for (size_t i = 0; i < scored.logprobs.size(); ++i)
    json.push_back(to_json(scored, i, request.tokens[i + 1]));
  return json;
}

nlohmann::ordered_json to_json(const Prompt& prompt, std::string_view text, const RequestOutput& last) {
  const Request& request = last.request;
  const auto output = request.tokens.begin() + request.num_prompt;
  nlohmann::ordered_json json = {
      {"prompt", prompt.text},
      {"input_ids", std::vector<int32_t>(request.tokens.begin(), output)},
      {"output_ids", std::vector<int32_t>(output, request.tokens.end())},
      {"text", text},
      {"finish_reason", to_string(request.finish_reason)},
  };
  if (request.params.n > 1) json["index"] = request.index;
  if (last.matched_token) json["matched"] = *last.matched_token;
  if (!last.matched_stop.empty()) json["matched"] = last.matched_stop;
  if (!last.message.empty()) json["message"] = last.message;
  if (prompt.answer) {
    json["answer"] = *prompt.answer;
    json["right"] = right(prompt, text);
  }
  json["cached_tokens"] = request.num_cached_tokens;
  json["num_preemptions"] = request.num_preemptions;
  if (const DraftCounts& drafts = request.draft.counts; drafts.num_steps > 0) {
    json["spec_verify_ct"] = drafts.num_steps;
    json["spec_draft_token_num"] = drafts.num_drafted;
    json["spec_accept_token_num"] = drafts.num_accepted;
  }
  json["timings"] = timings(request);
  return json;
}

std::string describe_quantized_kernels(const ExecutorInfo& info, bool deterministic) {
  if (info.device.type != DeviceType::kCuda) {
    const bool has_int8 = info.rounds_x && rounds_x_to_int8(info.weight_formats);
    return fmt::format(
        "the {} GEMM {} as it reads them",
        kernels::cpu::to_string(std::min(kernels::cpu::detect_isa(), kernels::cpu::Isa::kAvx512)),
        has_int8 ? "multiplies weights by activations in int8" : "dequantizes weights");
  }
  if (info.dtype == DType::kF32) return "the naive GEMM multiplies them by float32";
  if (deterministic) return "the quantized GEMM dequantizes weights in registers";
  return fmt::format(
      "{}GEMMs of few rows (at most 64 to 512, by format) dequantize weights in registers; GEMMs of more "
      "rows dequantize the weight first, tile by tile (except experts)",
      info.rounds_x ? "fp8 is multiplied by fp8 from 9 rows, with block scales from 129; " : "");
}

}  // namespace

Report::Report(const std::vector<Prompt>& prompts, OutputFormat format, bool has_text)
    : format_(format), has_text_(has_text), on_terminal_(isatty(STDOUT_FILENO)) {
  for (size_t i = 0; i < prompts.size(); ++i)
    for (int index = 0; index < prompts[i].params.n; ++index)
      entries_.push_back({.prompt = prompts[i],
                          .number = i + 1,
                          .text = {},
                          .json = {},
                          .logprobs = {},
                          .prompt_logprobs = {}});
}

void Report::add(size_t i, const RequestOutput& output) {
  Entry& entry = entries_[i];
  entry.text += output.text;
  for (size_t token = 0; token < output.logprobs.logprobs.size(); ++token)
    entry.logprobs.push_back(to_json(output.logprobs, token, output.token_ids[token]));
  if (output.has_prompt_logprobs)
    entry.prompt_logprobs = prompt_to_json(output.prompt_logprobs, output.request);
  if (output.finish_reason == FinishReason::kError || output.finish_reason == FinishReason::kAbort) {
    if (failed_.empty()) failure_ = output.message;
    failed_.push_back(entry.number);
  }
  if (output.finish_reason != FinishReason::kNone) finish(entry, output);
  show();
}

void Report::finish(Entry& entry, const RequestOutput& output) {
  entry.finished = true;
  if (entry.prompt.answer) {
    ++num_answers_;
    num_right_ += right(entry.prompt, entry.text) ? 1 : 0;
  }
  if (!has_text_ && format_ != OutputFormat::kJson) {
    const auto& tokens = output.request.tokens;
    for (size_t i = static_cast<size_t>(output.request.num_prompt); i < tokens.size(); ++i)
      entry.text += (entry.text.empty() ? "" : " ") + std::to_string(tokens[i]);
  }
  if (format_ != OutputFormat::kJson) return;
  nlohmann::ordered_json json = to_json(entry.prompt, entry.text, output);
  if (!entry.logprobs.empty()) json["logprobs"] = std::move(entry.logprobs);
  if (!entry.prompt_logprobs.empty()) json["prompt_logprobs"] = std::move(entry.prompt_logprobs);
  entry.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Report::show() {
  for (; turn_ < entries_.size(); ++turn_) {
    Entry& entry = entries_[turn_];
    if (format_ == OutputFormat::kJson) {
      if (!entry.finished) return;
      write_out(entry.json + "\n");
    } else {
      if (!entry.started) start_text(entry);
      entry.started = true;
      const std::string_view text = std::string_view(entry.text).substr(entry.shown);
      if (on_terminal_)
        write_out(printable(text));
      else
        write_out(text);
      entry.shown = entry.text.size();
      if (entry.finished) end_text(entry);
    }
    if (!entry.finished) return;
  }
}

void Report::start_text(const Entry& entry) const {
  if (format_ != OutputFormat::kPrompts) return;
  const std::string shown = entry.prompt.input_ids.empty()
                                ? printable(elide(entry.prompt.text, kMaxPromptChars))
                                : fmt::format("({} token ids)", entry.prompt.input_ids.size());
  write_out(fmt::format("[{}] {}\n    => ", entry.number, shown));
}

void Report::end_text(const Entry& entry) const {
  if (!entry.prompt.answer || format_ != OutputFormat::kPrompts)
    write_out("\n");
  else if (right(entry.prompt, entry.text))
    write_out("   (right)\n");
  else
    write_out(
        fmt::format("   (wrong: expected {})\n", printable(elide(*entry.prompt.answer, kMaxPromptChars))));
}

std::string weights_line(const ExecutorInfo& info, bool deterministic) {
  const Quantization& quantization = info.quantization;
  if (quantization.storage == WeightStorage::kPlain) return "";
  const std::string start = "weights of linear layers: ";
  if (info.weight_formats.empty())
    return start + to_string(quantization) + " by config.json; no files store complete matrices";
  int64_t num_elements = 0;
  double num_bytes = 0.0;
  for (const StoredFormat& format : info.weight_formats) {
    num_elements += format.num_elements;
    num_bytes += format.num_bytes;
  }
  const bool several = info.weight_formats.size() > 1;
  std::string names;
  for (const StoredFormat& format : info.weight_formats) {
    const double share = static_cast<double>(format.num_elements) / static_cast<double>(num_elements);
    names +=
        (names.empty() ? "" : ", ") + (several ? fmt::format("{:.1f} % ", 100.0 * share) : "") + format.name;
  }
  const std::string bytes = fmt::format(
      ", {:.2f} bytes each{}", num_bytes / static_cast<double>(num_elements), several ? " on average" : "");
  if (!has_quantized(info.weight_formats)) return start + names + bytes;
  return fmt::format("{}{} ({}){}; {}", start, names, quantization.method, bytes,
                     describe_quantized_kernels(info, deterministic));
}

namespace {

// "vectors of size 384, mean pooling, length 1" or "scores of 1 label, sigmoid, cls pooling".
std::string describe_outputs(const EmbedderInfo& info) {
  if (!info.classifier)
    return fmt::format("vectors of size {}, {} pooling{}", info.dimensions, to_string(info.pooling),
                       info.normalize ? ", length 1" : "");
  return fmt::format("scores of {}, {}, {} pooling{}", counted(info.dimensions, "label"),
                     to_string(info.classifier->activation), to_string(info.pooling),
                     info.classifier->prompt ? ", prompt with query and document" : "");
}

}  // namespace

void print_start(const EmbedderInfo& info) {
  log_info(fmt::format(
      "{} on {}, activations in {}, {:.1f} MB of weights, attention backend {}: {}, {} attention, texts of "
      "up to {} "
      "tokens",
      info.model, info.hardware.name, to_string(info.dtype), static_cast<double>(info.weight_bytes) / 1e6,
      info.resolution.prefill->name, describe_outputs(info), info.bidirectional ? "bidirectional" : "causal",
      info.max_input_tokens));
}

namespace {

std::string_view describe_rounding(const ExecutorInfo& info) {
  if (!info.rounds_x) return "";
  if (info.device.type == DeviceType::kCuda) return ", rounded before fp8 weights";
  return rounds_x_to_int8(info.weight_formats) ? ", rounded to int8 before quantized weights"
                                               : ", rounded before bfloat16 weights";
}

// Model, weights and attention backends.
void print_executor(const ExecutorInfo& info, std::string_view role, bool deterministic) {
  const bool on_gpu = info.device.type == DeviceType::kCuda;
  const int num_workers = on_gpu ? info.hardware.num_workers : num_threads();
  log_info(fmt::format("{}{} on {}, {}, activations in {}, {:.1f} MB of weights", role, info.model,
                       info.hardware.name, counted(num_workers, on_gpu ? "SM" : "thread"),
                       std::string(to_string(info.dtype)) + std::string(describe_rounding(info)),
                       static_cast<double>(info.weight_bytes) / 1e6));
  if (const std::string weights = weights_line(info, deterministic); !weights.empty()) log_info(weights);
  log_info(fmt::format("attention backend: prefill {}, decode {} ({})", info.resolution.prefill->name,
                       info.resolution.decode->name, info.resolution.why));
  for (const BackendEntry* backend : std::set{info.resolution.prefill, info.resolution.decode})
    if (backend->slow)
      log_warning("attention backend ", backend->name, ": ", backend->summary,
                  ": much slower than the default backend");
  if (info.always_absorbs)
    log_info("latent attention: absorbed in every step; ", info.resolution.prefill->name,
             " does not support contiguous keys");
}

}  // namespace

void print_start(const EngineInfo& info) {
  const ExecutorInfo& target = info.target();
  for (const ExecutorInfo& executor : info.executors)
    if (executor.rank == 0)
      print_executor(executor, &executor == &info.target() ? "" : "draft model: ", info.deterministic);
  if (target.num_ranks > 1)
    log_info(
        fmt::format("tensor parallel: {} ranks, {:.1f} MB of weights and {:.1f} MB of the KV pool in total",
                    target.num_ranks, static_cast<double>(info.weight_bytes()) / 1e6,
                    static_cast<double>(info.pool_bytes()) / 1e6));
  if (info.deterministic) log_info("deterministic inference: a token's bits depend on its own request only");
  log_info(fmt::format("KV pool: {} tokens in {} of {}, {}, {:.1f} MB; context {}, up to {} per step",
                       info.pool_slots, counted(info.pool_slots / info.page_size, "page"), info.page_size,
                       std::string(kernels::cache_dtype_name(target.kv_cache_dtype)) +
                           (target.has_kv_scales ? " with the checkpoint's scales" : ""),
                       static_cast<double>(info.pool_bytes()) / 1e6, info.context_length,
                       counted(info.limits.max_reqs, "request")));
  if (info.swa_pool_slots > 0)
    log_info(fmt::format("KV pool of sliding-window layers: {} tokens in {}", info.swa_pool_slots,
                         counted(info.swa_pool_slots / info.page_size, "page")));
  if (target.state_bytes > 0)
    log_info(fmt::format(
        "recurrent states: {}{} and {} of {:.1f} MB each, {:.1f} MB{}",
        counted(info.limits.max_reqs, "request"),
        info.limits.max_draft_reqs > 0 ? fmt::format(", {} for drafts", info.limits.max_draft_reqs) : "",
        counted(info.num_state_snapshots, "snapshot"), static_cast<double>(target.state_bytes) / 1e6,
        static_cast<double>(target.state_pool_bytes) / 1e6,
        info.num_state_snapshots == 0 ? ""
                                      : fmt::format("; a snapshot every {} of a prompt",
                                                    counted(info.state_snapshot_interval, "token"))));
  log_info(fmt::format("schedule: {}, steps of up to {}{}", to_string(info.schedule_policy),
                       counted(info.limits.max_tokens, "new token"),
                       info.overlap_schedule ? ", each scheduled while the one before is computed" : ""));
  log_info(info.prefix_cache ? fmt::format("prefix cache: pages of {}, eviction policy {}",
                                           counted(info.page_size, "token"), to_string(*info.prefix_cache))
                             : "prefix cache: off");
  if (info.num_host_cache_tokens > 0)
    log_info(fmt::format("host tier of the prefix cache: {}", counted(info.num_host_cache_tokens, "token")));
  if (target.cascade_min_keys > 0)
    log_info(
        fmt::format("cascade attention: decode steps with a shared prefix, if it saves at least "
                    "{} key reads",
                    target.cascade_min_keys));
  if (const SpeculativeOptions& speculation = info.speculation; speculation.algorithm)
    log_info(fmt::format("speculation: {}, up to {} tokens verified per request and step, with at most {}",
                         to_string(*speculation.algorithm), speculation.num_draft_tokens,
                         counted(speculation.disable_by_batch_size, "request")));
  if (!target.graph_sizes.empty())
    log_info(fmt::format("CUDA graphs: {} decode batch sizes up to {}{}, {:.1f} MB",
                         target.graph_sizes.size(), target.graph_sizes.back(),
                         target.num_verify_graph_sizes > 0
                             ? fmt::format(", {} sizes of steps with drafts", target.num_verify_graph_sizes)
                             : "",
                         static_cast<double>(info.graph_bytes()) / 1e6));
  if (info.pool_slots < info.context_length)
    log_warning("the KV pool has ", info.pool_slots,
                " tokens: longer requests end there instead of at the context length of ",
                info.context_length);
  else if (info.limits.max_kv_tokens < info.context_length)
    log_warning("--max-kv-tokens ", info.limits.max_kv_tokens,
                ": longer requests end there instead of at the context length of ", info.context_length);
}

void print_end(const Engine& engine) {
  const EngineStats& stats = engine.stats();
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  };
  log_info(fmt::format("{} generated in {}", counted(stats.num_generated_tokens, "token"),
                       counted(stats.num_steps, "step")));
  log_info(fmt::format(
      "steps with prompts: {} at {:.0f} tokens/s; decode steps: {} at {:.0f} tokens/s",
      counted(stats.num_prefill_tokens, "token"), rate(stats.num_prefill_tokens, stats.prefill_seconds),
      counted(stats.num_decode_tokens, "token"), rate(stats.num_decode_tokens, stats.decode_seconds)));
  if (engine.info().prefix_cache)
    log_info(
        fmt::format("prefix cache: {} of prompts were cached", counted(stats.num_cached_tokens, "token")));
  if (const CacheTierStats tiers = engine.cache_tiers(); tiers.num_host_pages > 0)
    log_info(fmt::format("tiers of the prefix cache: {} copied from host memory, {} from the disk",
                         counted(tiers.num_host_hit_pages, "page"),
                         counted(tiers.num_disk_hit_pages, "page")));
  if (const DraftCounts& drafts = stats.drafts; engine.info().speculation.algorithm)
    log_info(fmt::format(
        "speculation: {} drafted, {} accepted ({:.1f} %); {:.2f} tokens per request and step on average",
        counted(drafts.num_drafted, "token"), drafts.num_accepted, 100.0 * drafts.accept_rate(),
        drafts.accept_length()));
  log_info(fmt::format("KV pool peak usage: {} of {} tokens ({:.1f} %)", stats.peak_used_slots,
                       engine.info().pool_slots,
                       100.0 * stats.peak_used_slots / std::max(1, engine.info().pool_slots)));
}

}  // namespace attend::cli
