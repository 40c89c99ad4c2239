// Log of kernel choices for `--log-kernels` and benchmarks. If disabled, a choice costs one check of a flag.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace attend::kernels {

struct KernelChoice {
  std::string op;       // "linear"
  std::string problem;  // "8 x 4096 -> 6144, bfloat16"
  std::string kernel;
  std::string why;
  auto operator<=>(const KernelChoice&) const = default;
};
// Formats a choice: "linear of 8 x 4096 -> 6144, bfloat16: skinny GEMM (few rows: ...)".
std::string to_string(const KernelChoice& choice);

// Enables logging: each distinct choice of the process is logged once. Cannot be disabled again.
void log_kernels();

// Collects the distinct choices of the process, on any of its threads, during its lifetime.
class KernelChoices {
 public:
  KernelChoices();
  ~KernelChoices();
  KernelChoices(const KernelChoices&) = delete;
  KernelChoices& operator=(const KernelChoices&) = delete;

  // Returns the choices in the order in which they were first made.
  std::vector<KernelChoice> all() const;

 private:
  friend void record_choice(const KernelChoice& choice);
  std::vector<KernelChoice> seen_;
};

namespace internal {
inline std::atomic<int> num_listeners = 0;
}
// Returns true if there are listeners.
inline bool records_choices() { return internal::num_listeners.load(std::memory_order_relaxed) > 0; }
void record_choice(const KernelChoice& choice);

}  // namespace attend::kernels
