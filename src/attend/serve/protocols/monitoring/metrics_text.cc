#include "attend/serve/protocols/monitoring/metrics_text.h"

#include <fmt/format.h>

namespace attend::serve {
namespace {

struct Sample {
  const EngineMetrics& engine;
  const HttpMetrics& http;
};

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Row of the table of metrics. A name is null if that server has no such metric.
struct Number {
  const char* sglang;
  const char* vllm;
  const char* type;
  const char* help;
  double (*value)(const Sample&);
};
constexpr const char* kGauge = "gauge";
constexpr const char* kCounter = "counter";

double finished(const Sample& sample, FinishReason reason) {
  return static_cast<double>(sample.engine.num_finished[static_cast<size_t>(reason)]);
}

double tier_tokens(const Sample& sample, int64_t num_pages) {
  return static_cast<double>(num_pages * sample.engine.page_size);
}

constexpr Number kNumbers[] = {
    {"num_running_reqs", "num_requests_running", kGauge, "Running requests.",
     [](const Sample& s) { return double(s.engine.num_running); }},
    {"num_queue_reqs", "num_requests_waiting", kGauge, "Waiting requests.",
     [](const Sample& s) { return double(s.engine.num_waiting); }},
    {"num_used_tokens", nullptr, kGauge, "Tokens in the KV pool used by requests.",
     [](const Sample& s) { return double(s.engine.num_used_tokens); }},
    {"max_total_num_tokens", nullptr, kGauge, "Capacity of the KV pool in tokens.",
     [](const Sample& s) { return double(s.engine.num_total_tokens); }},
    {"gen_throughput", nullptr, kGauge, "Generated tokens per second, over about a second.",
     [](const Sample& s) { return s.engine.generation_throughput; }},
    {"token_usage", "kv_cache_usage_perc", kGauge, "Fraction of the KV pool used by requests.",
     [](const Sample& s) { return share(s.engine.num_used_tokens, s.engine.num_total_tokens); }},
    {nullptr, "gpu_cache_usage_perc", kGauge, "Old name of kv_cache_usage_perc, used by dashboards.",
     [](const Sample& s) { return share(s.engine.num_used_tokens, s.engine.num_total_tokens); }},
    {"prefix_cache_tokens", nullptr, kGauge, "Tokens in the prefix cache, including locked ones.",
     [](const Sample& s) { return double(s.engine.num_cached_tokens); }},
    {"prefix_cache_locked_tokens", nullptr, kGauge, "Tokens in the prefix cache used by running requests.",
     [](const Sample& s) { return double(s.engine.num_locked_tokens); }},
    {"prefix_cache_evictable_tokens", nullptr, kGauge, "Tokens in the prefix cache that can be evicted.",
     [](const Sample& s) { return double(s.engine.num_evictable_tokens); }},
    {"evicted_tokens_total", nullptr, kCounter, "Tokens evicted from the prefix cache.",
     [](const Sample& s) { return double(s.engine.num_evicted_tokens); }},
    {"cache_hit_rate", nullptr, kGauge, "Fraction of prompt tokens found in the prefix cache.",
     [](const Sample& s) { return share(s.engine.num_cached_prompt_tokens, s.engine.num_prompt_tokens); }},
    {"http_requests_active", nullptr, kGauge, "Active HTTP requests.",
     [](const Sample& s) { return double(s.http.num_active_requests); }},
    {"prompt_tokens_total", "prompt_tokens_total", kCounter, "Prompt tokens.",
     [](const Sample& s) { return double(s.engine.num_prompt_tokens); }},
    {"generation_tokens_total", "generation_tokens_total", kCounter, "Generated tokens.",
     [](const Sample& s) { return double(s.engine.num_generated_tokens); }},
    {"cached_tokens_total", "prefix_cache_hits_total", kCounter, "Prompt tokens found in the prefix cache.",
     [](const Sample& s) { return double(s.engine.num_cached_prompt_tokens); }},
    {"host_cached_tokens_total", nullptr, kCounter, "Part of cached_tokens_total copied from host memory.",
     [](const Sample& s) { return double(s.engine.num_host_cached_prompt_tokens); }},
    {"disk_cached_tokens_total", nullptr, kCounter, "Part of cached_tokens_total copied from the disk.",
     [](const Sample& s) { return double(s.engine.num_disk_cached_prompt_tokens); }},
    {"hicache_host_total_tokens", nullptr, kGauge, "Capacity of the host tier in tokens; 0 without one.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_host_pages); }},
    {"hicache_host_used_tokens", nullptr, kGauge, "Tokens in the host tier, including pinned ones.",
     [](const Sample& s) {
       return tier_tokens(s, s.engine.tiers.num_host_pages - s.engine.tiers.num_host_free_pages);
     }},
    {"hicache_host_pinned_tokens", nullptr, kGauge, "Tokens in the host tier being written to the disk.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_host_pinned_pages); }},
    {"hicache_demoted_tokens_total", nullptr, kCounter, "Tokens copied from the pool to the host tier.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_demoted_pages); }},
    {"hicache_host_hit_tokens_total", nullptr, kCounter, "Tokens copied from the host tier to the pool.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_host_hit_pages); }},
    {"hicache_disk_hit_tokens_total", nullptr, kCounter, "Tokens copied from the disk to the pool.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_disk_hit_pages); }},
    {"hicache_dropped_tokens_total", nullptr, kCounter,
     "Tokens not kept because the whole host tier was being written to the disk.",
     [](const Sample& s) { return tier_tokens(s, s.engine.tiers.num_dropped_pages); }},
    {"hicache_disk_bytes", nullptr, kGauge, "Bytes of the files of the disk tier.",
     [](const Sample& s) { return double(s.engine.tiers.num_disk_bytes); }},
    {"hicache_disk_max_bytes", nullptr, kGauge, "Limit of the bytes of the disk tier; 0 without one.",
     [](const Sample& s) { return double(s.engine.tiers.max_disk_bytes); }},
    {"hicache_disk_failures_total", nullptr, kCounter, "Failed reads and writes of the disk tier.",
     [](const Sample& s) { return double(s.engine.tiers.num_disk_failures); }},
    {"hicache_rejected_files_total", nullptr, kCounter,
     "Files of the disk tier that are corrupt, or of another format or model.",
     [](const Sample& s) { return double(s.engine.tiers.num_rejected_files); }},
    {nullptr, "prefix_cache_queries_total", kCounter, "Tokens looked up in the prefix cache.",
     [](const Sample& s) { return double(s.engine.num_prompt_tokens); }},
    {"num_requests_total", nullptr, kCounter, "Requests submitted to the engine.",
     [](const Sample& s) { return double(s.engine.num_requests); }},
    {"num_aborted_requests_total", nullptr, kCounter, "Requests aborted by clients or the operator.",
     [](const Sample& s) { return finished(s, FinishReason::kAbort); }},
    {"num_failed_requests_total", nullptr, kCounter, "Requests that failed in the engine.",
     [](const Sample& s) { return finished(s, FinishReason::kError); }},
    {"num_retracted_requests_total", "num_preemptions_total", kCounter, "Preemptions of requests.",
     [](const Sample& s) { return double(s.engine.num_preemptions); }},
    {"engine_steps_total", nullptr, kCounter, "Steps of the engine.",
     [](const Sample& s) { return double(s.engine.num_steps); }},
    {"engine_failed_steps_total", nullptr, kCounter, "Engine steps that failed.",
     [](const Sample& s) { return double(s.engine.num_failed_steps); }},
    {"prefix_cache_recoveries_total", nullptr, kCounter,
     "Times that the prefix cache was dropped after a failed conservation check.",
     [](const Sample& s) { return double(s.engine.num_recoveries); }},
    {"prefix_cache_heals_total", nullptr, kCounter, "Deprecated: prefix_cache_recoveries_total.",
     [](const Sample& s) { return double(s.engine.num_recoveries); }},
    {"spec_accept_length", nullptr, kGauge,
     "Speculation: mean accepted tokens per request and step since the start; 0 without speculation.",
     [](const Sample& s) { return s.engine.drafts.accept_length(); }},
    {"spec_accept_rate", nullptr, kGauge, "Speculation: fraction of drafted tokens that are accepted.",
     [](const Sample& s) { return s.engine.drafts.accept_rate(); }},
    {nullptr, "spec_decode_num_drafts_total", kCounter,
     "Speculation: verify steps of requests after their first token.",
     [](const Sample& s) { return double(s.engine.drafts.num_steps); }},
    {"spec_draft_tokens_total", "spec_decode_num_draft_tokens_total", kCounter,
     "Speculation: drafted tokens.", [](const Sample& s) { return double(s.engine.drafts.num_drafted); }},
    {"spec_accepted_tokens_total", "spec_decode_num_accepted_tokens_total", kCounter,
     "Speculation: drafted tokens that were accepted.",
     [](const Sample& s) { return double(s.engine.drafts.num_accepted); }},
    {"http_requests_total", nullptr, kCounter, "HTTP requests.",
     [](const Sample& s) { return double(s.http.num_requests); }},
    {"http_connections_total", nullptr, kCounter, "Connections.",
     [](const Sample& s) { return double(s.http.num_connections); }},
    {"http_writes_total", nullptr, kCounter, "Writes to connections, at most one per connection and step.",
     [](const Sample& s) { return double(s.http.num_writes); }},
};

struct Distribution {
  const char* sglang;
  const char* vllm;
  const char* help;
  Histogram EngineMetrics::*value;
};
constexpr Distribution kDistributions[] = {
    {"time_to_first_token_seconds", "time_to_first_token_seconds",
     "Time from arrival of a request to its first token.", &EngineMetrics::time_to_first_token},
    {"inter_token_latency_seconds", "inter_token_latency_seconds", "Time between two tokens of a request.",
     &EngineMetrics::inter_token},
    {"e2e_request_latency_seconds", "e2e_request_latency_seconds",
     "Time from arrival of a request to its end.", &EngineMetrics::end_to_end},
    {"queue_time_seconds", "request_queue_time_seconds", "Time from arrival of a request to its admission.",
     &EngineMetrics::queue_time},
    {nullptr, "request_prompt_tokens", "Prompt tokens of a finished request.", &EngineMetrics::prompt_length},
    {nullptr, "request_generation_tokens", "Generated tokens of a finished request.",
     &EngineMetrics::generation_length},
    {nullptr, "request_prefill_time_seconds", "Time from admission of a request to its first token.",
     &EngineMetrics::prefill_time},
    {nullptr, "request_decode_time_seconds", "Time from the first token of a request to its last.",
     &EngineMetrics::decode_time},
    {nullptr, "iteration_tokens_total", "Tokens computed in a step.", &EngineMetrics::step_tokens},
};

class Exposition {
 public:
  Exposition(std::string& text, const char* prefix, std::string labels)
      : text_(text), prefix_(prefix), labels_(std::move(labels)) {}

  void head(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP {0}:{1} {2}\n# TYPE {0}:{1} {3}\n", prefix_, name, help, type);
  }
  void number(const char* name, double value, const std::string& more_labels = {}) {
    text_ += fmt::format("{}:{}{{{}{}}} {}\n", prefix_, name, labels_, more_labels, value);
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    head(name, "histogram", help);
    int64_t below = 0;
    for (size_t i = 0; i < histogram.buckets.size(); ++i) {
      below += histogram.buckets[i];
      const std::string bound =
          i < histogram.upper_bounds.size() ? fmt::format("{}", histogram.upper_bounds[i]) : "+Inf";
      text_ += fmt::format("{}:{}_bucket{{{},le=\"{}\"}} {}\n", prefix_, name, labels_, bound, below);
    }
    text_ += fmt::format("{0}:{1}_sum{{{2}}} {3}\n{0}:{1}_count{{{2}}} {4}\n", prefix_, name, labels_,
                         histogram.sum, below);
  }

 private:
  std::string& text_;
  const char* prefix_;
  std::string labels_;
};

// Escapes backslash, quote and line feed of a label's value.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value)
    text += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return text;
}

void expose(Exposition out, const Sample& sample, const char* Number::*number,
            const char* Distribution::*distribution) {
  for (const Number& metric : kNumbers) {
    if (!(metric.*number)) continue;
    out.head(metric.*number, metric.type, metric.help);
    out.number(metric.*number, metric.value(sample));
  }
  for (const Distribution& metric : kDistributions)
    if (metric.*distribution) out.histogram(metric.*distribution, metric.help, sample.engine.*metric.value);
}

}  // namespace

std::string metrics_text(const EngineMetrics& engine, const HttpMetrics& http, const std::string& model_name,
                         MetricNames names) {
  const Sample sample{engine, http};
  const std::string model = "model_name=\"" + escaped(model_name) + "\"";
  std::string text;
  if (names != MetricNames::kVllm)
    expose({text, "sglang", model + R"(,engine_type="unified",tp_rank="0",pp_rank="0")"}, sample,
           &Number::sglang, &Distribution::sglang);
  if (names == MetricNames::kSglang) return text;
  Exposition vllm(text, "vllm", model + R"(,engine="0")");
  expose(vllm, sample, &Number::vllm, &Distribution::vllm);
  if (engine.page_size > 0) {
    vllm.head("cache_config_info", kGauge, "Pages of the KV pool.");
    vllm.number("cache_config_info", 1,
                fmt::format(",block_size=\"{}\",num_gpu_blocks=\"{}\"", engine.page_size,
                            engine.num_total_tokens / engine.page_size));
  }
  vllm.head("request_success_total", kCounter, "Finished requests by finish reason.");
  for (const FinishReason reason :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError})
    vllm.number("request_success_total", finished(sample, reason),
                fmt::format(",finished_reason=\"{}\"", to_string(reason)));
  return text;
}

}  // namespace attend::serve
