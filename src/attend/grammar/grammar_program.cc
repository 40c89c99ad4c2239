#include "attend/grammar/grammar_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "attend/base/error.h"
#include "attend/grammar/worker/messages.h"

// The executable file is embedded: a library has no folder of its own that is known to exist.
asm(".pushsection .rodata\n"
    ".balign 16\n"
    ".globl attend_grammar_program\n"
    ".hidden attend_grammar_program\n"
    "attend_grammar_program:\n"
    ".incbin \"" ATTEND_GRAMMAR_PROGRAM
    "\"\n"
    ".globl attend_grammar_program_end\n"
    ".hidden attend_grammar_program_end\n"
    "attend_grammar_program_end:\n"
    ".byte 0\n"
    ".popsection\n");
extern "C" {
[[gnu::visibility("hidden")]] extern const char attend_grammar_program[], attend_grammar_program_end[];
}

namespace attend {
namespace {

// Moves a file descriptor out of the numbers that the program uses.
int move_up(int file) {
  constexpr int kFirstFree = 10;
  const int moved = fcntl(file, F_DUPFD_CLOEXEC, kFirstFree);
  close(file);
  return moved;
}

[[noreturn]] void fail_start(int error) {
  fail(ErrorCode::kUnsupported, "grammars: the system does not start their process: ", std::strerror(error));
}

}  // namespace

GrammarProgram::GrammarProgram() {
  const int program = move_up(memfd_create("attend-grammar", MFD_CLOEXEC));
  int sockets[2] = {-1, -1};
  int error = program < 0 ? errno : 0;
  for (const char* at = attend_grammar_program; error == 0 && at < attend_grammar_program_end;) {
    const ssize_t num_written = write(program, at, static_cast<size_t>(attend_grammar_program_end - at));
    if (num_written <= 0) error = errno;
    at += num_written;
  }
  if (error == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) error = errno;
  if (error == 0) {
    socket_ = move_up(sockets[0]);
    const int theirs = move_up(sockets[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, theirs, grammar_worker::kSocket);
    const std::string path = "/proc/self/fd/" + std::to_string(program);
    char name[] = "attend-grammar";
    char* const arguments[] = {name, nullptr};
    error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(theirs);
  }
  if (program >= 0) close(program);
  if (error == 0) return;
  if (socket_ >= 0) close(socket_);
  fail_start(error);
}

GrammarProgram::~GrammarProgram() {
  close(socket_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace attend
