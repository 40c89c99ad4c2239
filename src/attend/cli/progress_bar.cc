#include "attend/cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace attend::cli {
namespace {

constexpr int kWidth = 40;

double megabytes(size_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

EngineBars::EngineBars() : on_terminal_(isatty(STDERR_FILENO)) {}

// Leaves the line empty for what comes next.
EngineBars::~EngineBars() {
  if (!shown_.empty()) fmt::print(stderr, "\r\033[K");
}

EngineProgress EngineBars::progress() {
  return {.weights =
              [this](size_t done, size_t total) {
                const double share =
                    total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
                show("loading weights", share, fmt::format("{:.1f} MB", megabytes(total)));
              },
          .graphs =
              [this](const GraphsSoFar& graphs) {
                show("recording CUDA graphs", 1.0 * graphs.num_done / graphs.num_sizes,
                     fmt::format("{} batch sizes, now {}; {:.1f} MB so far", graphs.num_sizes,
                                 graphs.batch_size, megabytes(graphs.num_bytes)));
              }};
}

void EngineBars::show(std::string_view label, double share, const std::string& note) {
  if (!on_terminal_) return;
  const int percent = static_cast<int>(100.0 * share);
  const int filled = percent * kWidth / 100;
  std::string line =
      fmt::format("{} [{:=<{}}{: <{}}] {:3}% of {}", label, "", filled, "", kWidth - filled, percent, note);
  if (line == shown_) return;
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  shown_ = std::move(line);
}

}  // namespace attend::cli
