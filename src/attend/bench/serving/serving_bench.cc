#include "attend/bench/serving/serving_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <thread>
#include <unordered_map>

#include "attend/base/error.h"
#include "attend/bench/model/model_steps.h"
#include "attend/exec/step_trace.h"

namespace attend::bench {
namespace {

std::string describe_lengths(const LengthDistribution& lengths) {
  if (lengths.kind == LengthDistribution::Kind::kLogNormal)
    return fmt::format("log-normal, median {}, sigma {}, at most {}", lengths.median, lengths.sigma,
                       lengths.highest);
  if (lengths.lowest == lengths.highest) return fmt::format("{}", lengths.lowest);
  return fmt::format("{} to {}", lengths.lowest, lengths.highest);
}

std::string describe_lengths(const ServingOptions& options, const Trace& trace) {
  const TraceOptions& wanted = options.trace;
  std::string words = fmt::format("{} requests", num_requests(trace));
  if (trace.size() != static_cast<size_t>(num_requests(trace)))
    words += fmt::format(" of {} conversations", trace.size());
  if (!options.trace_file.empty())
    words += ", " + options.trace_file.string();
  else
    words += fmt::format(", {} tokens in, {} out", describe_lengths(wanted.input),
                         describe_lengths(wanted.output));
  if (trace.back().arrival == 0.0)
    words += ", all at the start";
  else if (!options.trace_file.empty())
    words += fmt::format(", over {:.1f} s", trace.back().arrival);
  else if (wanted.burstiness == 1.0)
    words += fmt::format(", Poisson, {} per second", wanted.request_rate);
  else
    words += fmt::format(", gamma of shape {}, {} per second", wanted.burstiness, wanted.request_rate);
  if (wanted.num_shared_prefixes > 0)
    words += fmt::format(", with {} shared prefixes of {} tokens", wanted.num_shared_prefixes,
                         wanted.shared_prefix_tokens);
  if (options.max_concurrency > 0) words += fmt::format(", up to {} concurrent", options.max_concurrency);
  return words;
}

// A complete conversation must fit: the prompt of its last turn contains all previous turns.
void check_fits(const Trace& trace, const EngineInfo& info) {
  const int64_t longest =
      std::min<int64_t>({info.context_length, info.pool_slots, info.limits.max_kv_tokens});
  for (size_t i = 0; i < trace.size(); ++i) {
    int64_t num_tokens = 0;
    for (const Turn& turn : trace[i].turns)
      num_tokens += static_cast<int64_t>(turn.tokens.size()) + turn.output_tokens;
    require(num_tokens <= longest, "conversation ", i + 1, " of the trace: ", num_tokens,
            " tokens with its answers: at most ", longest,
            " (--context-length, --max-total-tokens, --max-kv-tokens)");
  }
}

class ServingBench {
 public:
  explicit ServingBench(const ServingOptions& options) : options_(options) {
    EngineProgress progress = options.progress;
    progress.resolved = [&](const Engine& engine) {
      trace_ = options.trace_file.empty() ? make_trace(options.trace, engine.model_spec())
                                          : read_trace(options.trace_file, options.trace, engine.tokenizer());
      check_fits(trace_, engine.info());
      if (options.progress.resolved) options.progress.resolved(engine);
    };
    engine_.emplace(options.engine, progress);
    num_requests_ = bench::num_requests(trace_);
  }

  ServingResult run() {
    warm_up();
    result_.info = engine_->info();
    result_.trace = describe_lengths(options_, trace_);
    for (size_t i = 0; i < trace_.size(); ++i) due_.push({trace_[i].arrival, i, 0, {}});
    const EngineStats before = engine_->stats();
    const int64_t preemptions_before = engine_->num_preemptions();
    if (!options_.profile.empty()) engine_->trace().start(0);
    start_ = Clock::now();
    int64_t prompt_tokens = before.num_prefill_tokens;
    while (static_cast<int>(result_.requests.size()) < num_requests_) {
      submit_due();
      if (engine_->step([this](const RequestOutput& output) { take(output); }))
        sample_pool();
      else
        wait_for_next();
      const int64_t so_far = engine_->stats().num_prefill_tokens;
      if (so_far > prompt_tokens) ++result_.num_prompt_steps;
      prompt_tokens = so_far;
    }
    result_.seconds = seconds_at(Clock::now());
    if (!options_.profile.empty()) engine_->trace().stop_to_file(options_.profile);
    result_.num_preemptions = engine_->num_preemptions() - preemptions_before;
    result_.num_steps = engine_->stats().num_steps - before.num_steps;
    result_.prompt_seconds = engine_->stats().prefill_seconds - before.prefill_seconds;
    result_.decode_seconds = engine_->stats().decode_seconds - before.decode_seconds;
    result_.num_evicted_tokens = engine_->stats().num_evicted_tokens - before.num_evicted_tokens;
    result_.drafts = engine_->stats().drafts - before.drafts;
    return std::move(result_);
  }

 private:
  struct Due {
    double seconds;
    size_t conversation;
    size_t turn;
    std::vector<int32_t> generated;  // before this turn
    // The earliest is the largest, so it is first in the priority queue.
    bool operator<(const Due& other) const {
      return std::pair(seconds, conversation) > std::pair(other.seconds, other.conversation);
    }
  };
  struct Running {
    size_t conversation;
    size_t turn;
    double arrival;
    double last_output = 0.0;
    ServedRequest served = {};
  };

  double seconds_at(Clock::time_point time) const {
    return std::chrono::duration<double>(time - start_).count();
  }

  // One-time work that is not part of serving: touching pages, loading kernels.
  void warm_up() {
    engine_->submit(random_prompt(1, engine_->model_spec().vocab_size), {.max_new_tokens = 1});
    while (engine_->step(require_token)) {
    }
    engine_->flush_cache();
  }

  void submit_due() {
    const double now = seconds_at(Clock::now());
    const auto limit = static_cast<size_t>(options_.max_concurrency);
    while (!due_.empty() && due_.top().seconds <= now && (limit == 0 || running_.size() < limit)) {
      Due due = due_.top();
      due_.pop();
      const Turn& turn = trace_[due.conversation].turns[due.turn];
      due.generated.insert(due.generated.end(), turn.tokens.begin(), turn.tokens.end());
      const auto num_prompt = static_cast<int>(due.generated.size());
      const RequestId id = engine_->submit(std::move(due.generated),
                                           {.max_new_tokens = turn.output_tokens, .ignore_eos = true});
      const double arrival = limit == 0 ? due.seconds : now;
      running_[id] = {.conversation = due.conversation, .turn = due.turn, .arrival = arrival};
      running_[id].served = {.arrival = arrival, .num_prompt = num_prompt};
    }
  }

  void take(const RequestOutput& output) {
    require_token(output);
    require(output.finish_reason != FinishReason::kAbort,
            "bench serving: a request was not answered: ", output.message);
    const auto found = running_.find(output.id);
    if (found == running_.end()) return;
    Running& running = found->second;
    const double now = seconds_at(output.time);
    const size_t num_new = output.token_ids.size();
    if (running.served.num_output == 0) {
      running.served.first_token = now;
      running.served.num_cached = output.request.num_cached_tokens;
    } else {
      // The tokens of one output share its time equally.
      result_.inter_token_seconds.insert(result_.inter_token_seconds.end(), num_new,
                                         (now - running.last_output) / static_cast<double>(num_new));
    }
    running.served.num_output += static_cast<int>(num_new);
    running.last_output = now;
    if (!output.finished()) return;
    running.served.finished = now;
    if (running.turn + 1 < trace_[running.conversation].turns.size())
      due_.push({now, running.conversation, running.turn + 1, output.request.tokens});
    result_.requests.push_back(running.served);
    running_.erase(found);
    if (options_.served) options_.served(static_cast<int>(result_.requests.size()), num_requests_);
  }

  void sample_pool() {
    result_.samples.push_back({.seconds = seconds_at(Clock::now()),
                               .num_running = engine_->num_running(),
                               .num_waiting = engine_->num_waiting(),
                               .num_used_tokens = engine_->num_used_slots(),
                               .num_cached_tokens = engine_->num_cached_slots()});
  }

  // If nothing runs, waits until the next request arrives.
  void wait_for_next() {
    ensure(!due_.empty(), "bench serving: no request is running or pending");
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(due_.top().seconds)));
  }

  const ServingOptions& options_;
  Trace trace_;
  std::optional<Engine> engine_;
  int num_requests_ = 0;
  Clock::time_point start_;
  std::priority_queue<Due> due_;
  std::unordered_map<RequestId, Running> running_;
  ServingResult result_;
};

}  // namespace

ServingResult bench_serving(const ServingOptions& options) {
  require(options.max_concurrency >= 0, "--max-concurrency ", options.max_concurrency, ": at least 1");
  return ServingBench(options).run();
}

double percentile(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0.0;
  const auto size = static_cast<int64_t>(sorted.size());
  const auto rank = static_cast<int64_t>(std::ceil(share * static_cast<double>(size))) - 1;
  return sorted[static_cast<size_t>(std::clamp<int64_t>(rank, 0, size - 1))];
}

}  // namespace attend::bench
