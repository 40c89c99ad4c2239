#include "attend/grammar/grammar_compiler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "attend/grammar/compiled_grammars.h"
#include "attend/grammar/xgrammar.h"

namespace attend {
namespace {

using CompileClock = std::chrono::steady_clock;
using Callbacks = std::vector<GrammarCompiler::Callback>;

constexpr int kNumThreads = 2;  // number of threads, excluding abandoned ones
constexpr int kLowPriority = 10, kLowestPriority = 19;
constexpr std::chrono::seconds kShutdownTimeout{1};

// Sets the priority of a thread; on Linux each thread has its own.
void set_priority(pid_t thread, int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice); }

std::string key_of(const Grammar& grammar) {
  return std::string(to_string(grammar.kind)) + ':' + grammar.text;
}

// JSON allows no control characters except newlines and tabs, and no tabs inside strings.
bool is_no_json(char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\r'; }

GrammarResult make_result(const std::shared_ptr<const xgrammar::CompiledGrammar>& compiled) {
  try {
    return {compiled->make_mask(), std::nullopt};
  } catch (const Error& error) {
    return {nullptr, error};
  } catch (const std::exception& error) {
    return {nullptr, Error(ErrorCode::kInternal, error.what())};
  }
}

}  // namespace

class GrammarCompiler::State : public std::enable_shared_from_this<State> {
 public:
  State(const GrammarLibrary& library, GrammarVocabulary vocabulary, const GrammarLimits& limits)
      : library_(library),
        vocabulary_(std::move(vocabulary)),
        limits_(limits),
        compiled_(limits.cache_bytes) {}

  void compile(Grammar grammar, Callback done) {
    if (std::optional<Error> error = rejection(grammar)) return done({nullptr, std::move(error)});
    std::string key = key_of(grammar);
    std::unique_lock lock(mutex_);
    if (const auto known = compiled_.find(key)) {
      lock.unlock();
      return done(make_result(known));
    }
    const auto [found, is_new] = jobs_.try_emplace(std::move(key));
    if (is_new) {
      found->second = std::make_shared<Job>(
          Job{std::move(grammar), CompileClock::now() + limits_.compile_time, {}, 0, false});
      queue_.push_back(found->second);
      start_threads();
      work_.notify_one();
      watch_.notify_one();
    } else if (found->second->abandoned) {
      const Error error = too_slow(found->second->grammar);
      lock.unlock();
      return done({nullptr, error});
    }
    found->second->waiting.push_back(std::move(done));
  }

  void stop() {
    Callbacks waiting;
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      for (const auto& [key, job] : jobs_)
        std::move(job->waiting.begin(), job->waiting.end(), std::back_inserter(waiting));
      for (const auto& [key, job] : jobs_) job->waiting.clear();
      queue_.clear();
      work_.notify_all();
      watch_.notify_all();
    }
    for (const Callback& done : waiting) done({nullptr, Error(ErrorCode::kUnsupported, "shutting down")});
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kShutdownTimeout, [&] { return num_threads_ == 0 && !watching_; });
  }

 private:
  struct Job {
    Grammar grammar;
    CompileClock::time_point deadline;
    Callbacks waiting;
    pid_t thread = 0;        // that compiles it; 0: not started
    bool abandoned = false;  // its time limit passed during compilation
  };

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

  Error too_slow(const Grammar& grammar) const {
    return {ErrorCode::kInvalidArgument, std::string(to_string(grammar.kind)) + ": not compiled within " +
                                             std::to_string(limits_.compile_time.count()) +
                                             " ms; expected a simpler one"};
  }

  // Requires the lock.
  void start_threads() {
    while (num_threads_ < kNumThreads + std::min(num_abandoned_threads_, kMaxAbandonedThreads)) {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
      ++num_threads_;
    }
    if (watching_) return;
    std::thread([self = shared_from_this()] { self->watch(); }).detach();
    watching_ = true;
  }

  void work() noexcept {
    const pid_t thread = gettid();
    set_priority(thread, kLowPriority);
    std::unique_lock lock(mutex_);
    bool abandoned = false;
    while (!stopping_ && !abandoned) {
      if (queue_.empty()) {
        work_.wait(lock);
        continue;
      }
      const std::shared_ptr<Job> job = std::move(queue_.front());
      queue_.pop_front();
      job->thread = thread;
      lock.unlock();
      run(*job);
      lock.lock();
      abandoned = job->abandoned;
    }
    if (abandoned) --num_abandoned_threads_;
    --num_threads_;
    ended_.notify_all();
  }

  void run(Job& job) {
    std::shared_ptr<const xgrammar::CompiledGrammar> compiled;
    std::optional<Error> error;
    try {
      const bool json =
          job.grammar.kind == GrammarKind::kJsonSchema || job.grammar.kind == GrammarKind::kStructuralTag;
      compiled = compiler(json ? json_ : text_, json).compile(job.grammar);
    } catch (const Error& known) {
      error = known;
    } catch (const std::exception& other) {
      error.emplace(ErrorCode::kInternal, other.what());
    }
    Callbacks waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting.swap(job.waiting);
      std::string key = key_of(job.grammar);
      jobs_.erase(key);
      if (compiled) compiled_.add(std::move(key), compiled);
    }
    for (const Callback& done : waiting)
      done(compiled ? make_result(compiled) : GrammarResult{nullptr, error});
  }

  struct LazyCompiler {
    std::once_flag once;
    std::optional<xgrammar::Compiler> compiler;
  };
  const xgrammar::Compiler& compiler(LazyCompiler& lazy, bool json) {
    std::call_once(lazy.once, [&] {
      std::vector<std::string> tokens = vocabulary_.tokenizer->token_bytes();
      // xgrammar accepts control characters inside strings of bounded length.
      if (json)
        for (std::string& token : tokens)
          if (std::ranges::any_of(token, is_no_json)) token.clear();
      lazy.compiler.emplace(library_.xgrammar(), tokens, vocabulary_.vocab_size, vocabulary_.stop_ids);
    });
    return *lazy.compiler;
  }

  // Ends jobs that exceed the time limit.
  void watch() noexcept {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const std::shared_ptr<Job> first = first_deadline();
      if (!first) {
        watch_.wait(lock);
        continue;
      }
      if (CompileClock::now() < first->deadline) {
        watch_.wait_until(lock, first->deadline);
        continue;
      }
      const Callbacks waiting = std::exchange(first->waiting, {});
      if (first->thread == 0) {
        std::erase(queue_, first);
        jobs_.erase(key_of(first->grammar));
      } else {
        first->abandoned = true;
        ++num_abandoned_threads_;
        set_priority(first->thread, kLowestPriority);
        start_threads();
      }
      lock.unlock();
      for (const Callback& done : waiting) done({nullptr, too_slow(first->grammar)});
      lock.lock();
    }
    watching_ = false;
    ended_.notify_all();
  }

  // Requires the lock. Considers jobs within their time limit.
  std::shared_ptr<Job> first_deadline() const {
    std::shared_ptr<Job> first;
    for (const auto& [key, job] : jobs_)
      if (!job->abandoned && (!first || job->deadline < first->deadline)) first = job;
    return first;
  }

  const GrammarLibrary library_;
  const GrammarVocabulary vocabulary_;
  const GrammarLimits limits_;
  LazyCompiler text_, json_;

  std::mutex mutex_;
  std::condition_variable work_, watch_, ended_;
  std::deque<std::shared_ptr<Job>> queue_;                      // not started
  std::unordered_map<std::string, std::shared_ptr<Job>> jobs_;  // queued and running
  CompiledGrammars compiled_;
  int num_threads_ = 0, num_abandoned_threads_ = 0;
  bool watching_ = false, stopping_ = false;
};

GrammarVocabulary GrammarVocabulary::of(const Tokenizer* tokenizer, const ModelSpec& model) {
  GrammarVocabulary vocabulary;
  if (tokenizer != nullptr) vocabulary.tokenizer = *tokenizer;
  vocabulary.vocab_size = model.vocab_size;
  for (const int32_t id : model.eos_token_ids)
    if (id < model.vocab_size) vocabulary.stop_ids.push_back(id);
  return vocabulary;
}

GrammarCompiler::GrammarCompiler(const GrammarLibrary& library, GrammarVocabulary vocabulary,
                                 const GrammarLimits& limits)
    : state_(std::make_shared<State>(library, std::move(vocabulary), limits)) {}

GrammarCompiler::~GrammarCompiler() { state_->stop(); }

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
