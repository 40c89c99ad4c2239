// Report of a bench, printed and written as JSON: cases, each with its limit.
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
  double us;          // median of the repeats; for a GPU's steps the mean
  double value;       // measured rate in `unit`; for generated tokens from the mean step
  std::string unit;   // "GB/s", "GFLOP/s", "tokens/s"
  double limit;       // in `unit`; 0: not measured
  std::string bound;  // name of the limit: "read 16 MiB", "avx512 f32"
  int repeats;
  // Peak of matrix tiles (AMX) in `unit`; 0: no tiles, or not the bound.
  double tiles_limit = 0;
  std::string kernel = {};  // kernel that computed the case; empty: see Report::kernels

  double share() const { return limit > 0 ? value / limit : 0.0; }
  double tiles_share() const { return tiles_limit > 0 ? value / tiles_limit : 0.0; }
};

struct Report {
  std::string bench;            // "attention" or "model"
  std::string machine;          // CPU or GPU
  std::string instruction_set;  // used by attention; for a GPU its architecture
  int threads = 0;              // total number
  // Properties such as "driver", "580.65.06".
  std::vector<std::pair<std::string, std::string>> facts = {};
  bool has_tiles = false;  // cases may have a tiles_limit
  std::vector<MachineFigure> figures = {};
  std::vector<CaseResult> cases = {};
  // Kernel choices, such as "linear of 8 x 4096 -> 6144, bfloat16: skinny GEMM (...)", without duplicates.
  std::vector<std::string> kernels = {};
};

// Returns the text of Report::kernels.
std::vector<std::string> choice_names(const kernels::KernelChoices& choices);

// Prints a table to stdout, each case as soon as it is complete. Output is not flushed.
class ReportPrinter {
 public:
  // Prints what is new in `report` since the last call: first the machine, then cases.
  void show(const Report& report);
  // Prints the rest: figures of the machine and kernels.
  void finish(const Report& report);

 private:
  size_t num_shown_ = 0;  // number of printed cases
};

// Writes {"machine", "instruction_set", "threads", "date", "version", <fact>: text, "figures": [...],
// "cases": [{"case", "threads", "us", <unit>: value, "limit", "bound", "share", "tiles_limit", "tiles_share",
// "kernel", "repeats"}], "kernels": [text]}. Limits and kernels are omitted if there are none. The date is
// UTC. A regular file is replaced atomically, so readers see the old or the new contents. Throws
// Error(kInvalidArgument) if the file cannot be written.
void write_json(const Report& report, const std::filesystem::path& path);

}  // namespace attend::bench
