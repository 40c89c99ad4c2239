#include "attend/cli/line_editor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

#include "attend/base/error.h"

namespace attend::cli {
namespace {

constexpr wchar_t kCtrlC = 3;

LineEditor& owner(EditLine* editor) {
  void* data = nullptr;
  el_get(editor, EL_CLIENTDATA, &data);
  return *static_cast<LineEditor*>(data);
}

// Descriptor that the handler of SIGINT makes readable. A signal may arrive before poll() waits, and on any
// thread.
std::atomic<int> interrupt_event{-1};

void on_interrupt(int) {
  const int error_number = errno;
  const uint64_t one = 1;
  (void)!::write(interrupt_event, &one, sizeof(one));
  errno = error_number;
}

// Handles SIGINT by on_interrupt() while it lives.
class InterruptHandler {
 public:
  explicit InterruptHandler(int event) {
    interrupt_event = event;
    struct sigaction changed {};
    changed.sa_handler = on_interrupt;
    changed.sa_flags = SA_RESTART;
    sigaction(SIGINT, &changed, &before_);
  }
  ~InterruptHandler() { sigaction(SIGINT, &before_, nullptr); }
  InterruptHandler(const InterruptHandler&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

LineEditor::LineEditor() : interrupt_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  constexpr int kHistoryLines = 1000;
  std::setlocale(LC_CTYPE, "");  // multibyte characters are edited as one
  history_.reset(history_init());
  editor_.reset(el_init("attend", stdin, stderr, stderr));  // stdout is for answers
  ensure(history_ && editor_ && interrupt_event_ >= 0, "the line editor: no memory or descriptors");
  HistEvent event;
  history(history_.get(), &event, H_SETSIZE, kHistoryLines);
  el_set(editor_.get(), EL_CLIENTDATA, this);
  el_set(editor_.get(), EL_PROMPT, &prompt);
  el_set(editor_.get(), EL_EDITOR, "emacs");
  el_set(editor_.get(), EL_HIST, history, history_.get());
  el_set(editor_.get(), EL_GETCFN, &read_key);
  el_set(editor_.get(), EL_ADDFN, "attend-clear-line", "Clears the line", &clear_line);
  el_set(editor_.get(), EL_BIND, "^C", "attend-clear-line", nullptr);
  el_set(editor_.get(), EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() { close(interrupt_event_); }

LineEditor::Result LineEditor::read(const char* prompt, std::string& line) {
  const InterruptHandler handler(interrupt_event_);
  prompt_ = prompt;
  was_interrupted_ = false;
  int num_bytes = 0;
  const char* typed = el_gets(editor_.get(), &num_bytes);
  if (typed == nullptr || num_bytes <= 0) {
    std::fputs("\n", stderr);
    return was_interrupted_ ? Result::kInterrupt : Result::kEnd;
  }
  line.assign(typed, static_cast<size_t>(num_bytes));
  if (line.ends_with('\n')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(history_.get(), &event, H_ENTER, line.c_str());
  return Result::kLine;
}

char* LineEditor::prompt(EditLine* editor) { return const_cast<char*>(owner(editor).prompt_); }

// Reads one character in the locale's encoding. SIGINT becomes the key Ctrl-C.
int LineEditor::read_key(EditLine* editor, wchar_t* key) {
  const int event = owner(editor).interrupt_event_;
  std::mbstate_t state{};
  while (true) {
    std::array<pollfd, 2> sources{{{STDIN_FILENO, POLLIN, 0}, {event, POLLIN, 0}}};
    if (poll(sources.data(), sources.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (uint64_t count; sources[1].revents != 0 && ::read(event, &count, sizeof(count)) > 0) {
      *key = kCtrlC;
      return 1;
    }
    char byte = 0;
    const ssize_t num_read = ::read(STDIN_FILENO, &byte, 1);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) return static_cast<int>(num_read);
    const size_t used = std::mbrtowc(key, &byte, 1, &state);
    constexpr size_t kIncomplete = static_cast<size_t>(-2), kInvalid = static_cast<size_t>(-1);
    if (used == kInvalid) state = {};
    if (used != kIncomplete && used != kInvalid) return 1;
  }
}

unsigned char LineEditor::clear_line(EditLine* editor, int) {
  const LineInfoW* line = el_wline(editor);
  const auto num_chars = static_cast<int>(line->lastchar - line->buffer);
  if (num_chars == 0) {
    owner(editor).was_interrupted_ = true;
    return CC_EOF;
  }
  el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
  el_wdeletestr(editor, num_chars);
  return CC_REFRESH;
}

}  // namespace attend::cli
