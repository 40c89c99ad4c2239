#include "attend/grammar/grammar_compiler.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "attend/grammar/compiled_grammars.h"
#include "attend/grammar/grammar_process.h"
#include "attend/grammar/xgrammar.h"
#include "attend/tensor/arena.h"

namespace attend {
namespace {

using Callbacks = std::vector<GrammarCompiler::Callback>;

std::string cache_key(const Grammar& grammar) {
  return std::string(to_string(grammar.kind)) + ':' + grammar.text;
}

GrammarResult make_result(GrammarProcess& process) {
  try {
    return {process.make_mask(), std::nullopt};
  } catch (const std::exception& error) {
    return {nullptr, Error(ErrorCode::kInternal, error.what())};
  }
}

grammar_worker::Setup make_setup(const GrammarLibrary& library, const GrammarVocabulary& vocabulary,
                                 const GrammarLimits& limits) {
  grammar_worker::Setup setup;
  setup.vocab_size = vocabulary.vocab_size;
  setup.max_bytes = limits.memory_bytes;
  setup.stop_ids = vocabulary.stop_ids;
  if (!library.available() || !vocabulary.tokenizer) return setup;
  setup.tvm_ffi = library.xgrammar()->tvm_ffi_path;
  setup.bindings = library.xgrammar()->bindings_path;
  setup.tokens = vocabulary.tokenizer->token_bytes();
  // A token without bytes is never allowed. Special tokens receive bytes that are in no text, so that
  // grammars can allow them by their ids.
  for (size_t id = 0; id < setup.tokens.size(); ++id)
    if (setup.tokens[id].empty() && vocabulary.tokenizer->is_special(static_cast<int32_t>(id)) &&
        std::ranges::find(setup.stop_ids, static_cast<int32_t>(id)) == setup.stop_ids.end())
      setup.tokens[id] = "\xff" + std::to_string(id);
  return setup;
}

GrammarLimits resolved(GrammarLimits limits) {
  if (limits.total_memory_bytes == 0) limits.total_memory_bytes = available_host_bytes() / 2;
  // A grammar without others must not wait.
  limits.total_memory_bytes = std::max(limits.total_memory_bytes, limits.memory_bytes);
  return limits;
}

}  // namespace

class GrammarCompiler::State {
 public:
  State(const GrammarLibrary& library, GrammarVocabulary vocabulary, const GrammarLimits& limits)
      : library_(library),
        vocabulary_(std::move(vocabulary)),
        limits_(resolved(limits)),
        hub_(std::make_shared<GrammarHub>(limits_, make_setup(library_, vocabulary_, limits_))),
        compiled_(limits.cache_bytes) {}

  ~State() {
    Callbacks waiting;
    {
      const std::lock_guard lock(hub_->mutex);
      stopping_ = true;
      for (const auto& [key, job] : jobs_)
        std::move(job->waiting.begin(), job->waiting.end(), std::back_inserter(waiting));
      for (const auto& [key, job] : jobs_) job->waiting.clear();
    }
    hub_->wake();
    if (thread_.joinable()) thread_.join();
    for (const Callback& done : waiting) done({nullptr, shutting_down()});
  }

  void compile(Grammar grammar, Callback done) {
    if (std::optional<Error> error = rejection(grammar)) return done({nullptr, std::move(error)});
    std::string key = cache_key(grammar);
    std::shared_ptr<GrammarProcess> known;
    {
      const std::lock_guard lock(hub_->mutex);
      known = compiled_.find(key);
      if (known && known->error()) {
        compiled_.remove(key);
        known.reset();
      }
      if (!known) {
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
        const auto [found, is_new] = jobs_.try_emplace(std::move(key));
        if (is_new) {
          found->second = std::make_shared<Job>(
              Job{std::move(grammar), GrammarClock::now() + limits_.compile_time, {}, nullptr, {}});
          queue_.push_back(found->second);
        }
        found->second->waiting.push_back(std::move(done));
      }
    }
    if (known) return done(make_result(*known));
    hub_->wake();
  }

 private:
  struct Job {
    Grammar grammar;
    GrammarClock::time_point deadline;
    Callbacks waiting;
    std::shared_ptr<GrammarProcess> process;  // null: not started
    std::optional<Error> error;               // of its start
  };

  static Error shutting_down() { return {ErrorCode::kUnsupported, "shutting down"}; }

  std::optional<Error> rejection(const Grammar& grammar) const {
    if (!library_.available()) return Error(ErrorCode::kUnsupported, library_.rejection());
    if (!vocabulary_.tokenizer)
      return Error(ErrorCode::kUnsupported, "grammars: the model directory has no tokenizer.json");
    if (vocabulary_.stop_ids.empty())
      return Error(ErrorCode::kUnsupported, "grammars: the model has no end-of-sequence token to end a text");
    if (grammar.text.size() > limits_.grammar_bytes)
      return Error(ErrorCode::kInvalidArgument,
                   std::string(to_string(grammar.kind)) + " of " + std::to_string(grammar.text.size()) +
                       " bytes: expected at most " + std::to_string(limits_.grammar_bytes));
    return std::nullopt;
  }

  Error waited_too_long(const Grammar& grammar) const {
    return {ErrorCode::kOutOfMemory,
            std::string(to_string(grammar.kind)) + ": not compiled within " +
                std::to_string(limits_.compile_time.count()) +
                " ms: other grammars are being compiled, or need the memory of all grammars, " +
                std::to_string(limits_.total_memory_bytes >> 20) + " MiB; try again later"};
  }

  // Serves all processes: starts them, reads their replies, and watches their time limits.
  void run() noexcept {
    pthread_setname_np(pthread_self(), "attend-grammars");
    while (true) {
      try {
        start_jobs();
        const std::vector<std::shared_ptr<GrammarProcess>> live = live_processes();
        if (!poll_sockets(live)) return;
        finish_jobs();
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the next attempt may have memory
      }
    }
  }

  // Starts queued compilations. A process is started without the lock, since the first one takes long.
  void start_jobs() {
    while (true) {
      uint32_t id = 0;
      const std::shared_ptr<Job> job = take_job(id);
      evicted_.clear();
      if (!job) return;
      std::shared_ptr<GrammarProcess> process;
      std::optional<Error> error;
      try {
        process = std::make_shared<GrammarProcess>(hub_, id, job->grammar, job->deadline);
      } catch (const Error& failure) {
        error = failure;
      }
      const std::lock_guard lock(hub_->mutex);
      job->process = process;
      job->error = error;
      if (process) processes_.push_back(process);
    }
  }

  // Removes a compilation that may start from the queue, and cached grammars whose memory it needs. Returns
  // null if there is none.
  std::shared_ptr<Job> take_job(uint32_t& id) {
    const std::lock_guard lock(hub_->mutex);
    std::erase_if(processes_, [](const auto& process) { return process.expired(); });
    const auto num_compiling =
        std::ranges::count_if(jobs_, [](const auto& entry) { return entry.second->process != nullptr; });
    if (stopping_ || queue_.empty() || num_compiling >= kMaxCompiling) return nullptr;
    size_t num_processes = processes_.size(), num_bytes = hub_->reserved_bytes + limits_.memory_bytes;
    while (num_processes >= kMaxProcesses || num_bytes > limits_.total_memory_bytes) {
      std::shared_ptr<GrammarProcess> idle = compiled_.take_idle();
      if (!idle) return nullptr;
      --num_processes;
      num_bytes -= idle->reserved_bytes();
      evicted_.push_back(std::move(idle));
    }
    const std::shared_ptr<Job> job = queue_.front();
    queue_.pop_front();
    id = hub_->next_id++;
    return job;
  }

  std::vector<std::shared_ptr<GrammarProcess>> live_processes() {
    std::vector<std::shared_ptr<GrammarProcess>> live;
    const std::lock_guard lock(hub_->mutex);
    for (const std::weak_ptr<GrammarProcess>& each : processes_)
      if (auto process = each.lock(); process && process->socket() >= 0) live.push_back(std::move(process));
    return live;
  }

  // Waits for replies, orders and time limits. Returns false at the end.
  bool poll_sockets(const std::vector<std::shared_ptr<GrammarProcess>>& live) {
    std::vector<pollfd> files = {{.fd = hub_->wake_file(), .events = POLLIN, .revents = 0}};
    int timeout = -1;
    {
      const std::lock_guard lock(hub_->mutex);
      if (stopping_) {
        for (const auto& process : live) process->fail(shutting_down());
        return false;
      }
      std::optional<GrammarClock::time_point> first;
      const auto add = [&](std::optional<GrammarClock::time_point> time) {
        if (time && (!first || *time < *first)) first = time;
      };
      for (const auto& process : live) {
        const int events = POLLIN | (process->has_rest() ? POLLOUT : 0);
        files.push_back({.fd = process->socket(), .events = static_cast<short>(events), .revents = 0});
        add(process->deadline());
      }
      for (const auto& job : queue_) add(job->deadline);
      for (const auto& [key, job] : jobs_)
        if (job->error) add(GrammarClock::now());
      if (first) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - GrammarClock::now());
        timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
      }
    }
    poll(files.data(), files.size(), timeout);
    uint64_t num_wakes = 0;
    if (files[0].revents != 0) [[maybe_unused]]
      const ssize_t num_read = read(hub_->wake_file(), &num_wakes, sizeof num_wakes);
    const std::lock_guard lock(hub_->mutex);
    const auto now = GrammarClock::now();
    for (size_t i = 0; i < live.size(); ++i) {
      if ((files[i + 1].revents & POLLOUT) != 0) live[i]->send_rest();
      if ((files[i + 1].revents & ~POLLOUT) != 0) live[i]->receive();
      live[i]->check_time(now);
    }
    return true;
  }

  // Calls back for jobs that have a result.
  void finish_jobs() {
    std::vector<std::shared_ptr<Job>> finished;
    {
      const std::lock_guard lock(hub_->mutex);
      const auto now = GrammarClock::now();
      for (auto entry = jobs_.begin(); entry != jobs_.end();) {
        const auto& [key, job] = *entry;
        if (job->process) {
          job->error = job->process->error();
        } else if (!job->error && now >= job->deadline) {
          job->error = waited_too_long(job->grammar);
          std::erase(queue_, job);
        }
        if (!job->error && !(job->process && job->process->compiled())) {
          ++entry;
          continue;
        }
        if (!job->error) compiled_.add(key, job->process);
        finished.push_back(job);
        entry = jobs_.erase(entry);
      }
      compiled_.remove_failed();
    }
    for (const std::shared_ptr<Job>& job : finished)
      for (const Callback& done : job->waiting)
        done(job->error ? GrammarResult{nullptr, job->error} : make_result(*job->process));
  }

  const GrammarLibrary library_;
  const GrammarVocabulary vocabulary_;
  const GrammarLimits limits_;
  const std::shared_ptr<GrammarHub> hub_;

  // Data below: under the hub's mutex.
  std::deque<std::shared_ptr<Job>> queue_;                      // not started
  std::unordered_map<std::string, std::shared_ptr<Job>> jobs_;  // queued and running
  std::vector<std::weak_ptr<GrammarProcess>> processes_;
  CompiledGrammars compiled_;
  bool stopping_ = false;

  std::vector<std::shared_ptr<GrammarProcess>> evicted_;  // of the thread
  std::thread thread_;
};

GrammarVocabulary GrammarVocabulary::make(const Tokenizer* tokenizer, const ModelSpec& model) {
  GrammarVocabulary vocabulary;
  if (tokenizer != nullptr) vocabulary.tokenizer = *tokenizer;
  vocabulary.vocab_size = model.vocab_size;
  for (const int32_t id : model.eos_token_ids)
    if (id < model.vocab_size) vocabulary.stop_ids.push_back(id);
  return vocabulary;
}

GrammarCompiler::GrammarCompiler(const GrammarLibrary& library, GrammarVocabulary vocabulary,
                                 const GrammarLimits& limits)
    : state_(std::make_unique<State>(library, std::move(vocabulary), limits)) {}

GrammarCompiler::~GrammarCompiler() = default;

void GrammarCompiler::compile(Grammar grammar, Callback done) {
  state_->compile(std::move(grammar), std::move(done));
}

std::shared_ptr<TokenMask> GrammarCompiler::compile(const Grammar& grammar) {
  std::promise<GrammarResult> promise;
  std::future<GrammarResult> result = promise.get_future();
  compile(grammar, [&](GrammarResult made) { promise.set_value(std::move(made)); });
  GrammarResult made = result.get();
  if (made.error) throw Error(*made.error);
  return made.mask;
}

}  // namespace attend
