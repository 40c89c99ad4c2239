// AdaptiveSteps: number of draft steps by batch size and by the acceptance of earlier drafts.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "attend/engine/speculation/speculative_options.h"

namespace attend {

// Returns SGLang's default rows (--speculative-adaptive): up to 7 steps at batch 1, none from batch 64 on.
std::vector<AdaptiveRow> default_adaptive_rows();
// Reads rows from a JSON file in SGLang's format (--speculative-adaptive-config): an object with a member for
// each batch size, {"1": {"candidate_steps": [1, 3, 7]}, ...}, and members that apply to all rows. Throws
// Error(kNotFound), or Error(kCorruptFile) with the member and what is accepted.
std::vector<AdaptiveRow> read_adaptive_rows(const std::filesystem::path& path);
// Returns the largest number of steps of any row.
int most_steps(const std::vector<AdaptiveRow>& rows);

// Each row averages the number of accepted tokens of its drafts (exponential moving average). After a warm-up
// it moves, every few batches, to fewer steps if the average is below them, and to more steps if nearly all
// drafts are accepted. A row without drafts (0 steps) tries its smallest number of steps again.
class AdaptiveSteps {
 public:
  // `rows`: at least one, with at least one candidate each. `initial_steps`: of rows that have it as a
  // candidate; other rows start with their middle one.
  AdaptiveSteps(const std::vector<AdaptiveRow>& rows, int initial_steps);

  // Returns the number of steps for a batch of `batch_size` decoding requests: that of the row with the
  // nearest batch size, the smaller one of two.
  int steps(int batch_size) const { return rows_[find(batch_size)].steps(); }
  // Reports a batch. `num_accepted`: mean number of accepted tokens of its drafts; none: it had no drafts.
  void observe(int batch_size, std::optional<double> num_accepted);

 private:
  struct Row {
    AdaptiveRow options;
    size_t candidate = 0;  // index of the current number of steps
    double mean_accepted = 0.0;
    int num_batches = 0;

    int steps() const { return options.candidate_steps[candidate]; }
    // Mean that keeps the current candidate.
    double neutral() const { return steps() - 1.0; }
    void choose();
  };

  size_t find(int batch_size) const;  // index of the row

  std::vector<Row> rows_;  // by batch size
};

}  // namespace attend
