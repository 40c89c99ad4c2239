#include "attend/cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace attend::cli {
namespace {
constexpr int kWidth = 40;
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), on_terminal_(isatty(STDERR_FILENO)) {}

// Leaves the line empty for what comes next.
ProgressBar::~ProgressBar() {
  if (on_terminal_ && shown_percent_ >= 0) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(size_t done, size_t total) {
  if (!on_terminal_ || total == 0) return;
  const int percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  const int filled = percent * kWidth / 100;
  fmt::print(stderr, "\r{} [{:=<{}}{: <{}}] {:3}% of {:.1f} MB", label_, "", filled, "", kWidth - filled,
             percent, static_cast<double>(total) / 1e6);
  std::fflush(stderr);
}

}  // namespace attend::cli
