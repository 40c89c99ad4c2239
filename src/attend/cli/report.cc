#include "attend/cli/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "attend/base/log.h"
#include "attend/base/parallel.h"

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

// "1 token", "2 tokens".
std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

// A byte inside of a UTF-8 sequence, not its first.
bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

nlohmann::ordered_json timings(const Request& request) {
  const RequestTimes& times = request.times;
  const double decode_ms = milliseconds(times.first_token, times.finished);
  const int decoded = request.num_output() - 1;
  return {{"queue_ms", milliseconds(times.submitted, times.admitted)},
          {"time_to_first_token_ms", milliseconds(times.submitted, times.first_token)},
          {"decode_ms", decode_ms},
          {"total_ms", milliseconds(times.submitted, times.finished)},
          {"decode_tokens_per_second", decoded > 0 ? 1e3 * decoded / decode_ms : 0.0}};
}

nlohmann::ordered_json to_json(const Prompt& prompt, std::string_view text, const Request& request) {
  const auto output = request.tokens.begin() + request.num_prompt;
  nlohmann::ordered_json json = {
      {"prompt", prompt.text},
      {"input_ids", std::vector<int32_t>(request.tokens.begin(), output)},
      {"output_ids", std::vector<int32_t>(output, request.tokens.end())},
      {"text", text},
      {"finish_reason", to_string(request.finish_reason)},
  };
  if (prompt.answer) {
    json["answer"] = *prompt.answer;
    json["right"] = right(prompt, text);
  }
  json["num_preemptions"] = request.num_preemptions;
  json["timings"] = timings(request);
  return json;
}

}  // namespace

std::string elide(std::string_view text, size_t max_chars) {
  if (text.size() <= max_chars) return std::string(text);
  size_t head = max_chars / 2, tail = text.size() - max_chars / 2;
  while (head > 0 && continues_utf8(text[head])) --head;
  while (tail < text.size() && continues_utf8(text[tail])) ++tail;
  return fmt::format("{} [... {} bytes ...] {}", text.substr(0, head), tail - head, text.substr(tail));
}

Report::Report(std::vector<Prompt> prompts, OutputFormat format) : format_(format) {
  for (Prompt& prompt : prompts) entries_.push_back({.prompt = std::move(prompt), .text = {}, .json = {}});
}

void Report::add(size_t i, const StepOutput& output) {
  Entry& entry = entries_[i];
  entry.text += output.text;
  if (output.finish_reason == FinishReason::kError) failed_.push_back(i + 1);
  if (output.finish_reason != FinishReason::kNone) finish(entry, output);
  show();
}

void Report::finish(Entry& entry, const StepOutput& output) {
  entry.finished = true;
  if (entry.prompt.answer) {
    ++num_answers_;
    num_right_ += right(entry.prompt, entry.text) ? 1 : 0;
  }
  // Without a tokenizer the ids are the completion.
  if (output.text.empty() && entry.text.empty() && !entry.prompt.input_ids.empty() &&
      format_ == OutputFormat::kText) {
    const auto& tokens = output.request.tokens;
    for (size_t i = static_cast<size_t>(output.request.num_prompt); i < tokens.size(); ++i)
      entry.text += (entry.text.empty() ? "" : " ") + std::to_string(tokens[i]);
  }
  if (format_ == OutputFormat::kJson)
    entry.json = to_json(entry.prompt, entry.text, output.request)
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Report::show() {
  for (; turn_ < entries_.size(); ++turn_) {
    Entry& entry = entries_[turn_];
    if (format_ == OutputFormat::kJson) {
      if (!entry.finished) return;
      fmt::print("{}\n", entry.json);
    } else {
      if (!entry.started) start_text(entry, turn_ + 1);
      entry.started = true;
      fmt::print("{}", std::string_view(entry.text).substr(entry.shown));
      entry.shown = entry.text.size();
      if (entry.finished) end_text(entry);
    }
    std::fflush(stdout);
    if (!entry.finished) return;
  }
}

void Report::start_text(const Entry& entry, size_t number) const {
  // A single prompt is known to who typed it; the completion alone is what a script wants.
  if (entries_.size() == 1) return;
  const std::string shown = entry.prompt.input_ids.empty()
                                ? elide(entry.prompt.text, kMaxPromptChars)
                                : fmt::format("({} token ids)", entry.prompt.input_ids.size());
  fmt::print("[{}] {}\n    => ", number, shown);
}

void Report::end_text(const Entry& entry) const {
  if (!entry.prompt.answer)
    fmt::print("\n");
  else if (right(entry.prompt, entry.text))
    fmt::print("   (right)\n");
  else
    fmt::print("   (wrong: expected {})\n", elide(*entry.prompt.answer, kMaxPromptChars));
}

void print_start(const EngineInfo& info) {
  const bool on_gpu = info.device.type == DeviceType::kCuda;
  const int num_workers = on_gpu ? info.hardware.num_workers : num_threads();
  log_info(fmt::format("{} on {}, {}, activations in {}, {:.1f} MB of weights", info.model,
                       info.hardware.name, counted(num_workers, on_gpu ? "SM" : "thread"),
                       to_string(info.dtype), static_cast<double>(info.weight_bytes) / 1e6));
  log_info(fmt::format("attention backend: prefill {}, decode {} ({})", info.resolution.prefill->name,
                       info.resolution.decode->name, info.resolution.why));
  if (info.deterministic) log_info("deterministic inference: a token's bits depend on its own request alone");
  log_info(fmt::format("KV pool: {} tokens in {} of {}, {}, {:.1f} MB; context {}, {} at once",
                       info.pool_slots, counted(info.pool_slots / info.resolution.page_size, "page"),
                       info.resolution.page_size, to_string(info.kv_cache_dtype),
                       static_cast<double>(info.pool_bytes) / 1e6, info.context_length,
                       counted(info.limits.max_reqs, "request")));
  if (!info.graph_sizes.empty())
    log_info(fmt::format("CUDA graphs: {} decode batch sizes up to {}, {:.1f} MB", info.graph_sizes.size(),
                         info.graph_sizes.back(), static_cast<double>(info.graph_bytes) / 1e6));
  if (info.pool_slots < info.context_length)
    log_warning("the KV pool holds ", info.pool_slots,
                " tokens: longer requests end there, not at the context's ", info.context_length);
  else if (info.limits.max_kv_tokens < info.context_length)
    log_warning("--max-kv-tokens ", info.limits.max_kv_tokens,
                ": longer requests end there, not at the context's ", info.context_length);
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
  log_info(fmt::format("KV pool at its fullest: {} of {} tokens ({:.1f} %)", stats.peak_used_slots,
                       engine.info().pool_slots,
                       100.0 * stats.peak_used_slots / std::max(1, engine.info().pool_slots)));
}

}  // namespace attend::cli
