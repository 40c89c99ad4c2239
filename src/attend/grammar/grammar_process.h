// GrammarProcess: a grammar in a process of the grammar program, with the masks of its texts. GrammarHub:
// data that all processes of a compiler share.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "attend/engine/generation_request.h"
#include "attend/grammar/grammar_compiler.h"
#include "attend/grammar/grammar_program.h"
#include "attend/grammar/worker/messages.h"

namespace attend {

using GrammarClock = std::chrono::steady_clock;

class GrammarHub {
 public:
  GrammarHub(const GrammarLimits& limits, grammar_worker::Setup setup);
  ~GrammarHub();
  GrammarHub(const GrammarHub&) = delete;

  // Wakes the thread that polls the sockets.
  void wake() const noexcept;
  int wake_file() const { return wake_file_; }
  // Forks a process for grammars of a kind and returns its socket; starts the program if it does not run.
  // Throws Error(kUnsupported) if that fails.
  int fork_process(uint32_t id, GrammarKind kind);
  void kill_process(uint32_t id) noexcept;

  const GrammarLimits limits;
  std::mutex mutex;                 // of all processes and masks
  std::condition_variable changed;  // a mask is ready
  uint32_t next_id = 1;
  std::atomic<size_t> reserved_bytes = 0;  // GrammarProcess::reserved_bytes() of all processes

 private:
  bool send_fork(uint32_t id, GrammarKind kind, int socket);

  const grammar_worker::Setup setup_;
  int wake_file_ = -1;
  std::mutex program_mutex_;
  std::unique_ptr<GrammarProgram> program_;
};

class GrammarProcess : public std::enable_shared_from_this<GrammarProcess> {
 public:
  // Mask of the next token at one position of a text.
  struct State {
    bool ready = true, any = false;
    bool refused = false;  // of a drafted text that does not fit the grammar
    std::vector<uint32_t> words;

    bool allows(int32_t token_id) const;
  };
  // Positions of one text: the current one, and those after drafted tokens, which the process computes in
  // advance.
  struct Text {
    struct Drafted {
      int32_t token;
      State state;
    };
    State current;
    std::deque<Drafted> drafted;
    int64_t num_tokens = 0;  // accepted
    int num_dropped = 0;     // replies to come for positions that are not needed any more

    // Position of the next reply; null: its position is not needed.
    State* next_reply();
    void drop_drafted();
  };

  // Forks the process, which begins to compile.
  GrammarProcess(std::shared_ptr<GrammarHub> hub, uint32_t id, const Grammar& grammar,
                 GrammarClock::time_point deadline);
  // Kills the process.
  ~GrammarProcess();
  GrammarProcess(const GrammarProcess&) = delete;

  // Returns a mask at the start of a text. The grammar is compiled. Takes the hub's mutex.
  std::shared_ptr<TokenMask> make_mask();

  // The following functions require the hub's mutex.

  // Sends an order, as far as the socket accepts it; send_rest() continues.
  void send(grammar_worker::Order order, uint32_t id, int64_t number, std::string_view text, int num_replies);
  void send_rest();
  bool has_rest() const { return !outgoing_.empty(); }
  // Reads what has arrived.
  void receive();
  // Ends the process and fails its masks.
  void fail(const Error& error);
  // Fails if the process exceeds its time limit.
  void check_time(GrammarClock::time_point now);
  // Time at which check_time() fails, if the process is computing.
  std::optional<GrammarClock::time_point> deadline() const;

  int socket() const { return socket_; }  // -1 after a failure
  bool compiled() const { return compiled_; }
  const std::optional<Error>& error() const { return error_; }
  size_t num_bytes() const { return num_bytes_; }
  // Memory that the process may use.
  size_t reserved_bytes() const { return reserved_bytes_; }

 private:
  friend class ProcessMask;
  void receive(const grammar_worker::Message& message);
  Error to_error(const grammar_worker::Message& message) const;
  Error too_large() const;
  void reserve(size_t num_bytes);

  const std::shared_ptr<GrammarHub> hub_;
  const uint32_t id_;
  const GrammarKind kind_;
  const GrammarClock::time_point compile_deadline_;
  int socket_ = -1;
  std::string outgoing_, incoming_;
  int num_pending_ = 0;                // replies to come
  GrammarClock::time_point progress_;  // of the last reply, or of the first order after it
  bool compiled_ = false;
  std::optional<Error> error_;
  size_t num_bytes_ = 0, reserved_bytes_ = 0;
  State first_;  // mask at the start of a text
  std::unordered_map<uint32_t, Text> texts_;
};

}  // namespace attend
