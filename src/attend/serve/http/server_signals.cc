#include "attend/serve/http/server_signals.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "attend/base/error.h"

namespace attend::serve {
namespace {

constexpr unsigned kSecondsAfterSecondSignal = 1;
constexpr std::array kSignals = {SIGTERM, SIGINT, SIGALRM, SIGPIPE};

// State that the handlers read. They use async-signal-safe functions only.
struct State {
  int event = -1;
  std::atomic<bool> serving = false;
  std::atomic<int> num_signals = 0;
  std::atomic<bool> has_file = false;
  std::array<char, 128> path = {};
  dev_t device = 0;
  ino_t inode = 0;
  std::array<struct sigaction, kSignals.size()> previous = {};
};
State handler_state;

static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void remove_socket_file() {
  struct stat found {};
  if (handler_state.has_file && ::lstat(handler_state.path.data(), &found) == 0 &&
      found.st_dev == handler_state.device && found.st_ino == handler_state.inode)
    ::unlink(handler_state.path.data());
}

// Ends the process by the signal itself, so that its parent sees the reason.
void end_process(int signal) {
  remove_socket_file();
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // takes effect when the handler returns
}

void on_alarm(int) {
  remove_socket_file();
  ::_exit(128 + SIGTERM);
}

void on_signal(int signal) {
  const int saved_errno = errno;
  const int number = ++handler_state.num_signals;
  if (!handler_state.serving || number > 2) {
    end_process(signal);
  } else {
    if (number == 2) ::alarm(kSecondsAfterSecondSignal);
    const uint64_t one = 1;
    (void)!::write(handler_state.event, &one, sizeof one);
  }
  errno = saved_errno;
}

}  // namespace

ServerSignals::ServerSignals() {
  ensure(handler_state.event < 0, "one ServerSignals at a time");
  handler_state.event = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ensure(handler_state.event >= 0, "eventfd: ", std::strerror(errno));
  handler_state.serving = false;
  handler_state.num_signals = 0;
  handler_state.has_file = false;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kSignals[i] == SIGPIPE ? SIG_IGN : kSignals[i] == SIGALRM ? on_alarm : on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(kSignals[i], &action, &handler_state.previous[i]);
  }
}

ServerSignals::~ServerSignals() {
  ::alarm(0);
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &handler_state.previous[i], nullptr);
  ::close(handler_state.event);
  handler_state.event = -1;
}

void ServerSignals::set_socket_file(const std::string& path) {
  handler_state.has_file = false;
  struct stat found {};
  if (path.empty() || path.size() >= handler_state.path.size() || ::lstat(path.c_str(), &found) != 0) return;
  std::memcpy(handler_state.path.data(), path.c_str(), path.size() + 1);
  handler_state.device = found.st_dev;
  handler_state.inode = found.st_ino;
  handler_state.has_file = true;
}

void ServerSignals::serve() { handler_state.serving = true; }

int ServerSignals::descriptor() const { return handler_state.event; }

int ServerSignals::take() {
  uint64_t count = 0;
  return ::read(handler_state.event, &count, sizeof count) == sizeof count ? static_cast<int>(count) : 0;
}

}  // namespace attend::serve
