#include "attend/checkpoint/mapped_range.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace attend {
namespace {

// A signal handler has nothing but globals, and may neither lock nor allocate. A program that maps more files
// than there are places still runs; the ones without a place go unnamed.
struct Place {
  std::atomic<const char*> path = nullptr;  // set last, cleared first
  std::atomic<bool> taken = false;
  uintptr_t begin = 0, end = 0;
};
constexpr size_t kNumPlaces = 4096;
constexpr size_t kNoPlace = kNumPlaces;
std::array<Place, kNumPlaces> places;
std::atomic<int> exit_code_of_handler = 0;

void say(const char* text) {
  // Nothing could be done about a failure.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Place& place : places) {
    const char* path = place.path.load(std::memory_order_acquire);
    if (path == nullptr || address < place.begin || address >= place.end) continue;
    say("attend: ");
    say(path);
    say(": the file was cut short while attend used it: expected a file that nobody writes to\n");
    _exit(exit_code_of_handler);
  }
  // The instruction runs again and meets the default.
  signal(SIGBUS, SIG_DFL);
}

}  // namespace

MappedRange::MappedRange(const void* begin, size_t num_bytes, const std::filesystem::path& path)
    : path_(path.string()), place_(kNoPlace) {
  for (size_t i = 0; i < kNumPlaces && place_ == kNoPlace; ++i)
    if (!places[i].taken.exchange(true)) place_ = i;
  if (place_ == kNoPlace) return;
  places[place_].begin = reinterpret_cast<uintptr_t>(begin);
  places[place_].end = places[place_].begin + num_bytes;
  places[place_].path.store(path_.c_str(), std::memory_order_release);
}

MappedRange::~MappedRange() {
  if (place_ == kNoPlace) return;
  places[place_].path = nullptr;
  places[place_].taken = false;
}

void exit_when_a_mapped_file_is_cut_short(int exit_code) {
  exit_code_of_handler = exit_code;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace attend
