// A loading bar on a terminal; nothing elsewhere.
#pragma once

#include <cstddef>
#include <string>

namespace attend::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  void update(size_t done, size_t total);

 private:
  std::string label_;
  bool on_terminal_;
  int shown_percent_ = -1;
};

}  // namespace attend::cli
