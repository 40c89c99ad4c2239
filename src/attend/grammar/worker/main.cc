// The grammar program: the launcher and the processes of grammars (messages.h).
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "attend/base/error.h"
#include "attend/grammar/worker/messages.h"
#include "attend/grammar/xgrammar.h"

namespace attend::grammar_worker {
namespace {

constexpr int kNice = 5;  // masks give way to the engine's steps

// JSON allows no control characters except newlines and tabs, and no tabs inside strings.
bool is_no_json(char c) { return static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\r'; }

bool is_json(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema || kind == GrammarKind::kStructuralTag;
}

// Compilers of the vocabulary, one for JSON and one for other texts. The first grammar of each sort has its
// compiler made in the launcher, so that later processes share it.
class Compilers {
 public:
  explicit Compilers(Setup setup)
      : setup_(std::move(setup)),
        library_(std::make_shared<const xgrammar::Library>(setup_.tvm_ffi, setup_.bindings)) {}

  const xgrammar::Compiler& of(GrammarKind kind) {
    std::optional<xgrammar::Compiler>& compiler = is_json(kind) ? json_ : text_;
    if (!compiler) {
      std::vector<std::string> tokens = setup_.tokens;
      // xgrammar accepts control characters inside strings of bounded length.
      if (is_json(kind))
        for (std::string& token : tokens)
          if (std::ranges::any_of(token, is_no_json)) token.clear();
      compiler.emplace(library_, tokens, static_cast<int>(setup_.vocab_size), setup_.stop_ids);
    }
    return *compiler;
  }
  const Setup& setup() const { return setup_; }

 private:
  Setup setup_;
  std::shared_ptr<const xgrammar::Library> library_;
  std::optional<xgrammar::Compiler> text_, json_;
};

uint64_t data_bytes() {
  uint64_t pages[6] = {};  // the last one: data
  std::ifstream file("/proc/self/statm");
  for (uint64_t& number : pages) file >> number;
  return pages[5] * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Limits the memory of this process to what it has and `max_bytes` more. A limit cannot be raised.
void limit_memory(uint64_t max_bytes) {
  const rlim_t bytes = data_bytes() + max_bytes;
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_DATA, &limit);
}

// Process of one grammar.
class Process {
 public:
  Process(int socket, Compilers& compilers) : socket_(socket), compilers_(compilers) {
    words_.resize((static_cast<size_t>(compilers.setup().vocab_size) + 31) / 32);
  }

  void run() {
    Message message;
    while (read_message(socket_, message)) {
      if (static_cast<Order>(message.header.kind) == Order::kDrop) {
        matchers_.erase(message.header.id);
        continue;
      }
      if (!answer(message)) return;
    }
  }

 private:
  // Returns false if the other end is closed.
  bool answer(const Message& message) {
    const Header& order = message.header;
    try {
      if (static_cast<Order>(order.kind) == Order::kCompile) {
        const auto kind = static_cast<GrammarKind>(order.number);
        grammar_ = compilers_.of(kind).compile({kind, message.text});
        const xgrammar::Matcher matcher = grammar_->make_matcher();
        limit_memory(mask_bytes(compilers_.setup().max_bytes));
        return reply({.id = order.id,
                      .number = static_cast<int64_t>(grammar_->num_bytes()),
                      .memory_bytes = data_bytes() - first_bytes_},
                     matcher);
      }
      xgrammar::Matcher& matcher = matchers_.try_emplace(order.id, grammar_->make_matcher()).first->second;
      matcher.rewind(order.number);
      bool fits = true;
      for (const int32_t token : message.tokens()) {
        fits = fits && matcher.accept(token);
        if (!(fits ? reply({.id = order.id}, matcher) : refuse(order.id))) return false;
      }
      return true;
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("bad_alloc") == std::string_view::npos)
        return fail_order(order.id, error.code(), error.what());
    } catch (const std::bad_alloc&) {
    } catch (const std::exception& error) {
      return fail_order(order.id, ErrorCode::kInternal, error.what());
    }
    return write_bytes(socket_,
                       to_bytes({.kind = static_cast<uint32_t>(Status::kOutOfMemory), .id = order.id}, ""));
  }

  bool reply(Header header, const xgrammar::Matcher& matcher) {
    const bool masked = matcher.fill(words_);
    const std::string_view bytes(reinterpret_cast<const char*>(words_.data()),
                                 words_.size() * sizeof words_[0]);
    header.kind = static_cast<uint32_t>(masked ? Status::kMasked : Status::kAny);
    return write_bytes(socket_, to_bytes(header, masked ? bytes : ""));
  }
  bool refuse(uint32_t id) {
    return write_bytes(socket_, to_bytes({.kind = static_cast<uint32_t>(Status::kRefused), .id = id}, ""));
  }
  bool fail_order(uint32_t id, ErrorCode code, std::string_view message) {
    return write_bytes(socket_, to_bytes({.kind = static_cast<uint32_t>(Status::kFailed),
                                          .id = id,
                                          .number = static_cast<int64_t>(code)},
                                         message));
  }

  int socket_;
  Compilers& compilers_;
  const uint64_t first_bytes_ = data_bytes();  // shared with the launcher
  std::shared_ptr<const xgrammar::CompiledGrammar> grammar_;
  std::map<uint32_t, xgrammar::Matcher> matchers_;  // by mask
  std::vector<uint32_t> words_;
};

[[noreturn]] void run_process(int socket, Compilers& compilers) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(kSocket);
  limit_memory(compilers.setup().max_bytes);
  Process(socket, compilers).run();
  _exit(0);
}

void reap(std::map<uint32_t, pid_t>& pids) {
  for (pid_t ended = 0; (ended = waitpid(-1, nullptr, WNOHANG)) > 0;)
    std::erase_if(pids, [&](const auto& entry) { return entry.second == ended; });
}

int run_launcher() {
  Message message;
  if (!read_message(kSocket, message)) return 0;
  Compilers compilers(Setup::parse(message.text));
  std::map<uint32_t, pid_t> pids;
  for (int socket = -1; read_message(kSocket, message, &socket);) {
    reap(pids);
    const uint32_t id = message.header.id;
    if (static_cast<Order>(message.header.kind) == Order::kKill) {
      if (const auto found = pids.find(id); found != pids.end()) {
        kill(found->second, SIGKILL);
        waitpid(found->second, nullptr, 0);
        pids.erase(found);
      }
      continue;
    }
    compilers.of(static_cast<GrammarKind>(message.header.number));
    if (const pid_t pid = fork(); pid == 0)
      run_process(socket, compilers);
    else if (pid > 0)
      pids[id] = pid;
    close(socket);
  }
  return 0;
}

}  // namespace
}  // namespace attend::grammar_worker

int main() {
  // Ctrl-C and a service manager signal all processes of a group: this one ends with its server's socket.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(signal_number, SIG_IGN);
  close_range(attend::grammar_worker::kSocket + 1, ~0u, 0);
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  setpriority(PRIO_PROCESS, 0, attend::grammar_worker::kNice);
  try {
    return attend::grammar_worker::run_launcher();
  } catch (const std::exception&) {
    return 1;  // the server reports that the program has ended
  }
}
