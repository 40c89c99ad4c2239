// What a bench prints and writes: cases, each beside its limit.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attend/kernels/common/kernel_choices.h"

namespace attend::bench {

// One line about the machine: "read 16 MiB", 1 thread, 32.1 GB/s.
struct MachineFigure {
  std::string name;
  int threads;
  double value;
  std::string unit;  // "GB/s", "GFLOP/s"
};

struct CaseResult {
  std::string name;
  int threads;
  double us;          // median of the repeats, of a GPU's steps the mean
  double value;       // what the limit bounds, in `unit`; of generated tokens by the mean step
  std::string unit;   // "GB/s", "GFLOP/s", "tokens/s"
  double limit;       // in `unit`; 0: none was measured
  std::string bound;  // what limits: "read 16 MiB", "avx512 f32"
  int repeats;
  // In `unit`: what matrix tiles (AMX) reach; 0: there are none, or they bound nothing.
  double tiles_limit = 0;
  std::string kernel = {};  // that served it; empty: see Report::kernels

  double share() const { return limit > 0 ? value / limit : 0.0; }
  double tiles_share() const { return tiles_limit > 0 ? value / tiles_limit : 0.0; }
};

struct Report {
  std::string bench;            // "attention", "model"
  std::string machine;          // CPU or GPU
  std::string instruction_set;  // that attention runs with; on a GPU its architecture
  int threads = 0;              // all of them
  // "driver", "580.65.06": what was chosen and found.
  std::vector<std::pair<std::string, std::string>> facts = {};
  bool has_tiles = false;  // whether cases may have a tiles_limit
  std::vector<MachineFigure> figures = {};
  std::vector<CaseResult> cases = {};
  // "linear of 8 x 4096 -> 6144, bfloat16: skinny GEMM (...)": each once.
  std::vector<std::string> kernels = {};
};

// Report::kernels.
std::vector<std::string> names_of(const kernels::KernelChoices& choices);

// A table on stdout, a case as soon as it is there. What is printed is not flushed.
class ReportPrinter {
 public:
  // What `report` has more than the one before: the machine first, then cases.
  void show(const Report& report);
  // The rest: figures of the machine, kernels.
  void finish(const Report& report);

 private:
  size_t num_shown_ = 0;  // cases
};

// {"machine", "instruction_set", "threads", "date", "version", <fact>: text, "figures": [...], "cases":
// [{"case", "threads", "us", <unit>: value, "limit", "bound", "share", "tiles_limit", "tiles_share",
// "kernel", "repeats"}], "kernels": [text]}; limits and kernels only where there are some. The date is UTC.
// Whoever reads a plain file while it is written finds the one before, whole.
// Throws Error(kInvalidArgument) for a file that cannot be written.
void write_json(const Report& report, const std::filesystem::path& path);

}  // namespace attend::bench
