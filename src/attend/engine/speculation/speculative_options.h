// Speculative decoding: which drafts are made, and how long they are. Names follow SGLang's server arguments.
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

}  // namespace attend
#pragma GCC visibility pop
