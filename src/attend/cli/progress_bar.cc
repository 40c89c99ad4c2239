#include "attend/cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "attend/cli/standard_streams.h"

namespace attend::cli {
namespace {

constexpr int kMaxBarColumns = 40;

double megabytes(size_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

EngineBars::EngineBars() : has_bars_(has_bars()) {}

EngineBars::~EngineBars() { clear(); }

void EngineBars::clear() {
  if (std::exchange(shown_, {}).empty()) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void EngineBars::show_prompts(int64_t num_done, int64_t num_tokens) {
  const double share = static_cast<double>(num_done) / static_cast<double>(std::max<int64_t>(num_tokens, 1));
  show("reading prompts", std::min(share, 1.0), fmt::format("{} tokens", num_tokens));
}

void EngineBars::show_requests(int num_done, int num_requests) {
  show("answering", 1.0 * num_done / num_requests, fmt::format("{} requests", num_requests));
}

EngineProgress EngineBars::progress() {
  return {.weights =
              [this](size_t done, size_t total) {
                const double share =
                    total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
                show("loading weights", share, fmt::format("{:.1f} MB", megabytes(total)));
              },
          .graphs =
              [this](const GraphProgressInfo& graphs) {
                show("recording CUDA graphs", 1.0 * graphs.num_done / graphs.num_sizes,
                     fmt::format("{} batch sizes, now {}; {:.1f} MB so far", graphs.num_sizes,
                                 graphs.batch_size, megabytes(graphs.num_bytes)));
              }};
}

void EngineBars::show(std::string_view label, double share, const std::string& note) {
  if (!has_bars_) return;
  const int percent = static_cast<int>(100.0 * share);
  const std::string before = fmt::format("{} [", label), suffix = fmt::format("] {:3}% of {}", percent, note);
  // One less than the terminal's width, since some terminals wrap after the last column.
  const int columns = static_cast<int>(terminal_columns(STDERR_FILENO)) - 1;
  const int text_columns = static_cast<int>(before.size() + suffix.size());
  const int bar_columns = std::clamp(columns - text_columns, 0, kMaxBarColumns),
            filled = percent * bar_columns / 100;
  std::string line = fmt::format("{}{:=<{}}{: <{}}{}", before, "", filled, "", bar_columns - filled, suffix);
  line.resize(std::min(line.size(), static_cast<size_t>(columns)));  // a second line would not be erased
  if (line == shown_) return;
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  shown_ = std::move(line);
}

}  // namespace attend::cli
