// Speculative decoding: which drafts are made, how long they are, and how many were accepted. Names follow
// SGLang's server arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace attend {

enum class SpeculativeAlgorithm : uint8_t {
  kNgram,  // what followed the request's last tokens where they stood before (prompt lookup)
};
std::string_view to_string(SpeculativeAlgorithm algorithm);
// Throws Error for a name other than NGRAM: kUnsupported for others of SGLang's, else kInvalidArgument.
SpeculativeAlgorithm parse_speculative_algorithm(std::string_view name);

struct SpeculativeOptions {
  std::optional<SpeculativeAlgorithm> algorithm = {};  // none: no speculation
  // Tokens of a request that a step verifies, the last one that is known among them: 2 to 64. 0: 12.
  int num_draft_tokens = 0;
  // kNgram: the longest run of last tokens that is looked for, and the shortest that counts.
  int ngram_max_match_window_size = 12;
  int ngram_min_match_window_size = 2;
  // Steps with more requests that generate draft nothing. 0: chosen.
  int disable_by_batch_size = 0;
};

// Throws Error(kInvalidArgument) naming the option, its value and what is accepted.
void check(const SpeculativeOptions& options);

// Counts of drafted and accepted tokens, of a request or of all.
struct DraftCounts {
  int64_t num_steps = 0;     // that gave a request tokens behind its first; those of several requests add up
  int64_t num_drafted = 0;   // tokens that were drafted for them
  int64_t num_accepted = 0;  // and that the model chose too

  void add(int drafted, int accepted) {
    ++num_steps;
    num_drafted += drafted;
    num_accepted += accepted;
  }
  DraftCounts operator-(const DraftCounts& before) const {
    return {num_steps - before.num_steps, num_drafted - before.num_drafted,
            num_accepted - before.num_accepted};
  }
  // Tokens that a step gave, on average: 1 without drafts; 0: there was no step.
  double accept_length() const {
    return num_steps == 0 ? 0.0 : 1.0 + static_cast<double>(num_accepted) / static_cast<double>(num_steps);
  }
  // Of drafted tokens; 0: there were none.
  double accept_rate() const {
    return num_drafted == 0 ? 0.0 : static_cast<double>(num_accepted) / static_cast<double>(num_drafted);
  }
};

}  // namespace attend
#pragma GCC visibility pop
