#include "attend/engine/speculation/speculative_options.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {

std::string_view to_string(SpeculativeAlgorithm algorithm) {
  switch (algorithm) {
    case SpeculativeAlgorithm::kNgram:
      return "NGRAM";
    case SpeculativeAlgorithm::kSuffix:
      return "SUFFIX";
  }
  return "unknown";
}

SpeculativeAlgorithm parse_speculative_algorithm(std::string_view name) {
  constexpr std::string_view kUnsupported[] = {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "DFLASH"};
  if (name == "NGRAM" || name == "ngram") return SpeculativeAlgorithm::kNgram;
  if (name == "SUFFIX" || name == "suffix") return SpeculativeAlgorithm::kSuffix;
  if (std::ranges::find(kUnsupported, name) != std::end(kUnsupported))
    fail(ErrorCode::kUnsupported, "speculative_algorithm ", name, ": expected NGRAM or SUFFIX");
  fail(ErrorCode::kInvalidArgument, "speculative_algorithm '", name, "': expected NGRAM or SUFFIX");
}

void check(const SpeculativeOptions& options) {
  require(options.num_draft_tokens == 0 || (options.num_draft_tokens >= 2 && options.num_draft_tokens <= 64),
          "speculative_num_draft_tokens ", options.num_draft_tokens,
          ": 2 to 64, the last known token among them");
  require(options.ngram_min_match_window_size >= 1, "speculative_ngram_min_match_window_size ",
          options.ngram_min_match_window_size, ": at least 1");
  require(options.ngram_max_match_window_size >= options.ngram_min_match_window_size,
          "speculative_ngram_max_match_window_size ", options.ngram_max_match_window_size,
          ": at least speculative_ngram_min_match_window_size, ", options.ngram_min_match_window_size);
  const SuffixOptions& suffix = options.suffix;
  require(suffix.max_tree_depth >= 2 && suffix.max_tree_depth <= 256, "speculative_suffix_max_tree_depth ",
          suffix.max_tree_depth, ": 2 to 256");
  require(suffix.max_cached_requests >= 0, "speculative_suffix_max_cached_requests ",
          suffix.max_cached_requests, ": at least 0");
  require(suffix.max_spec_factor > 0.0 && suffix.max_spec_factor <= 64.0,
          "speculative_suffix_max_spec_factor ", suffix.max_spec_factor, ": above 0, at most 64");
  require(suffix.min_token_prob >= 0.0 && suffix.min_token_prob <= 1.0, "speculative_suffix_min_token_prob ",
          suffix.min_token_prob, ": 0 to 1");
  require(options.disable_by_batch_size >= 0, "speculative_disable_by_batch_size ",
          options.disable_by_batch_size, ": at least 1");
}

}  // namespace attend
