#include "attend/kernels/common/kernel_choices.h"

#include <algorithm>
#include <mutex>

#include "attend/base/log.h"

namespace attend::kernels {
namespace {

struct Listeners {
  std::mutex mutex;
  std::vector<KernelChoices*> collecting;
  bool logs = false;
  std::vector<KernelChoice> logged;
};

Listeners& listeners() {
  static Listeners all;
  return all;
}

// Returns true if the choice is new.
bool add(const KernelChoice& choice, std::vector<KernelChoice>& seen) {
  if (std::find(seen.begin(), seen.end(), choice) != seen.end()) return false;
  seen.push_back(choice);
  return true;
}

}  // namespace

std::string to_string(const KernelChoice& choice) {
  return choice.op + " of " + choice.problem + ": " + choice.kernel + " (" + choice.why + ")";
}

void log_kernels() {
  const std::lock_guard lock(listeners().mutex);
  if (!listeners().logs) ++internal::num_listeners;
  listeners().logs = true;
}

KernelChoices::KernelChoices() {
  const std::lock_guard lock(listeners().mutex);
  listeners().collecting.push_back(this);
  ++internal::num_listeners;
}

KernelChoices::~KernelChoices() {
  const std::lock_guard lock(listeners().mutex);
  std::erase(listeners().collecting, this);
  --internal::num_listeners;
}

std::vector<KernelChoice> KernelChoices::all() const {
  const std::lock_guard lock(listeners().mutex);
  return seen_;
}

void record_choice(const KernelChoice& choice) {
  const std::lock_guard lock(listeners().mutex);
  for (KernelChoices* const collecting : listeners().collecting) add(choice, collecting->seen_);
  if (listeners().logs && add(choice, listeners().logged)) log_info("kernel: ", to_string(choice));
}

}  // namespace attend::kernels
