#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "attend/base/error.h"
#include "attend/bench/serving/serving_bench.h"

namespace attend::bench {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxSamples = 1000;
constexpr double kShares[] = {0.5, 0.9, 0.95, 0.99};

struct Latency {
  const char* key;
  const char* name;
  std::vector<double> milliseconds;  // sorted ascending

  double mean() const {
    const double sum = std::accumulate(milliseconds.begin(), milliseconds.end(), 0.0);
    return milliseconds.empty() ? 0.0 : sum / static_cast<double>(milliseconds.size());
  }
};

std::vector<Latency> collect_latencies(const ServingResult& result) {
  Latency ttft{"ttft", "time to first token", {}}, itl{"itl", "between two tokens", {}},
      tpot{"tpot", "per token after the first", {}}, e2e{"e2e", "to the last token", {}};
  for (const ServedRequest& request : result.requests) {
    ttft.milliseconds.push_back(1e3 * (request.first_token - request.arrival));
    e2e.milliseconds.push_back(1e3 * (request.finished - request.arrival));
    if (request.num_output > 1)
      tpot.milliseconds.push_back(1e3 * (request.finished - request.first_token) / (request.num_output - 1));
  }
  for (const double seconds : result.inter_token_seconds) itl.milliseconds.push_back(1e3 * seconds);
  for (Latency* latency : {&ttft, &itl, &tpot, &e2e})
    std::sort(latency->milliseconds.begin(), latency->milliseconds.end());
  return {std::move(ttft), std::move(itl), std::move(tpot), std::move(e2e)};
}

// Totals and peaks of a run.
struct Totals {
  int64_t num_prompt = 0, num_cached = 0, num_output = 0;
  int peak_running = 0, peak_used = 0;

  explicit Totals(const ServingResult& result) {
    for (const ServedRequest& request : result.requests) {
      num_prompt += request.num_prompt;
      num_cached += request.num_cached;
      num_output += request.num_output;
    }
    for (const PoolSample& sample : result.samples) {
      peak_running = std::max(peak_running, sample.num_running);
      peak_used = std::max(peak_used, sample.num_used_tokens);
    }
  }
  double hit_rate() const {
    return num_prompt == 0 ? 0.0 : static_cast<double>(num_cached) / static_cast<double>(num_prompt);
  }
};

ordered_json to_json(const Latency& latency) {
  ordered_json json = {{"mean", latency.mean()}};
  for (const double share : kShares)
    json[fmt::format("p{:.0f}", 100 * share)] = percentile(latency.milliseconds, share);
  json["max"] = percentile(latency.milliseconds, 1.0);
  for (int percent = 0; percent <= 100; ++percent)
    json["percentiles"].push_back(percentile(latency.milliseconds, percent / 100.0));
  return json;
}

ordered_json to_json(const std::vector<PoolSample>& samples) {
  ordered_json json = {{"seconds", ordered_json::array()},
                       {"running", ordered_json::array()},
                       {"waiting", ordered_json::array()},
                       {"used_tokens", ordered_json::array()},
                       {"cached_tokens", ordered_json::array()}};
  const size_t stride = (samples.size() + kMaxSamples - 1) / kMaxSamples;
  for (size_t i = 0; i < samples.size(); i += stride) {
    json["seconds"].push_back(samples[i].seconds);
    json["running"].push_back(samples[i].num_running);
    json["waiting"].push_back(samples[i].num_waiting);
    json["used_tokens"].push_back(samples[i].num_used_tokens);
    json["cached_tokens"].push_back(samples[i].num_cached_tokens);
  }
  return json;
}

double per_second(int64_t count, const ServingResult& result) {
  return static_cast<double>(count) / result.seconds;
}

}  // namespace

void print(const ServingResult& result) {
  const Totals totals(result);
  const auto num_requests = static_cast<int64_t>(result.requests.size());
  fmt::print("{} on {}\n{}\n\n", result.info.target().model, result.info.target().hardware.name,
             result.trace);
  fmt::print("{:<28} {:>10.2f} s\n", "all answered after", result.seconds);
  const auto rate = [&](const char* name, int64_t count, const char* unit) {
    fmt::print("{:<28} {:>10.1f} {}\n", name, per_second(count, result), unit);
  };
  rate("requests", num_requests, "/s");
  rate("prompt tokens", totals.num_prompt, "/s");
  rate("generated tokens", totals.num_output, "/s");
  rate("tokens in and out", totals.num_prompt + totals.num_output, "/s");
  fmt::print("{:<28} {:>10.1f} % of prompt tokens\n", "prefix cache hits", 100.0 * totals.hit_rate());
  fmt::print("{:<28} {:>10} requests, {} preemptions, {} steps\n", "concurrent, at most", totals.peak_running,
             result.num_preemptions, result.num_steps);
  const auto steps = [](const char* name, int64_t count, double seconds) {
    if (count > 0)
      fmt::print("{:<28} {:>10} of {:.2f} ms each\n", name, count,
                 1e3 * seconds / static_cast<double>(count));
  };
  steps("steps with prompts", result.num_prompt_steps, result.prompt_seconds);
  steps("decode-only steps", result.num_steps - result.num_prompt_steps, result.decode_seconds);
  fmt::print("{:<28} {:>10.1f} % of {} tokens in use at most, {} evicted\n\n", "KV pool",
             100.0 * totals.peak_used / result.info.pool_slots, result.info.pool_slots,
             result.num_evicted_tokens);
  if (result.info.speculation.algorithm)
    fmt::print("{:<28} {:>10.2f} tokens a step of a request, {:.1f} % of {} drafted\n\n", "speculation",
               result.drafts.accept_length(), 100.0 * result.drafts.accept_rate(), result.drafts.num_drafted);
  fmt::print("{:<28} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "milliseconds", "mean", "p50", "p90", "p95",
             "p99", "most");
  for (const Latency& latency : collect_latencies(result)) {
    fmt::print("{:<28} {:>9.2f}", latency.name, latency.mean());
    for (const double share : kShares) fmt::print(" {:>9.2f}", percentile(latency.milliseconds, share));
    fmt::print(" {:>9.2f}\n", percentile(latency.milliseconds, 1.0));
  }
}

void write_json(const ServingResult& result, const std::filesystem::path& path) {
  const Totals totals(result);
  const auto num_requests = static_cast<int64_t>(result.requests.size());
  ordered_json json = {{"bench", "serving"},
                       {"model", result.info.target().model},
                       {"machine", result.info.target().hardware.name},
                       {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
                       {"version", ATTEND_VERSION},
                       {"trace", result.trace},
                       {"seconds", result.seconds},
                       {"requests", num_requests},
                       {"requests/s", per_second(num_requests, result)},
                       {"input tokens/s", per_second(totals.num_prompt, result)},
                       {"output tokens/s", per_second(totals.num_output, result)},
                       {"hit_rate", totals.hit_rate()},
                       {"preemptions", result.num_preemptions},
                       {"evicted_tokens", result.num_evicted_tokens},
                       {"steps", result.num_steps},
                       {"prompt_steps", result.num_prompt_steps},
                       {"prompt_seconds", result.prompt_seconds},
                       {"decode_seconds", result.decode_seconds},
                       {"pool_tokens", result.info.pool_slots},
                       {"peak_used_tokens", totals.peak_used}};
  if (result.info.speculation.algorithm) {
    json["accept_length"] = result.drafts.accept_length();
    json["accept_rate"] = result.drafts.accept_rate();
  }
  for (const Latency& latency : collect_latencies(result)) json["latencies"][latency.key] = to_json(latency);
  json["samples"] = to_json(result.samples);
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  require(file.good(), "--json ", path.string(), ": cannot be written");
}

}  // namespace attend::bench
