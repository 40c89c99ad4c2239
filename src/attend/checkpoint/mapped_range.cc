#include "attend/checkpoint/mapped_range.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace attend {
namespace {

// A signal handler can use only globals, and may neither lock nor allocate. Files beyond the size of this
// table are not named in the message.
struct HandlerEntry {
  std::atomic<const char*> path = nullptr;  // set last, cleared first
  std::atomic<bool> taken = false;
  uintptr_t begin = 0, end = 0;
};
constexpr size_t kNumEntries = 4096;
constexpr size_t kNoEntry = kNumEntries;
std::array<HandlerEntry, kNumEntries> handler_entries;
std::atomic<int> handler_exit_code = 0;

void write_stderr(const char* text) {
  // A failure cannot be handled here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const HandlerEntry& entry : handler_entries) {
    const char* path = entry.path.load(std::memory_order_acquire);
    if (path == nullptr || address < entry.begin || address >= entry.end) continue;
    write_stderr("attend: ");
    write_stderr(path);
    write_stderr(
        ": the file was truncated while attend used it: expected a file that is not modified while attend "
        "runs\n");
    _exit(handler_exit_code);
  }
  // The instruction runs again, with the default handler.
  signal(SIGBUS, SIG_DFL);
}

}  // namespace

MappedRange::MappedRange(const void* begin, size_t num_bytes, const std::filesystem::path& path)
    : path_(path.string()), entry_(kNoEntry) {
  for (size_t i = 0; i < kNumEntries && entry_ == kNoEntry; ++i)
    if (!handler_entries[i].taken.exchange(true)) entry_ = i;
  if (entry_ == kNoEntry) return;
  handler_entries[entry_].begin = reinterpret_cast<uintptr_t>(begin);
  handler_entries[entry_].end = handler_entries[entry_].begin + num_bytes;
  handler_entries[entry_].path.store(path_.c_str(), std::memory_order_release);
}

MappedRange::~MappedRange() {
  if (entry_ == kNoEntry) return;
  handler_entries[entry_].path = nullptr;
  handler_entries[entry_].taken = false;
}

void exit_on_truncated_mapping(int exit_code) {
  handler_exit_code = exit_code;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace attend
