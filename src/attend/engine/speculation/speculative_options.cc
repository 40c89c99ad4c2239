#include "attend/engine/speculation/speculative_options.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

// Most likely tokens that kernels::top_logprobs() returns, and tokens of a draft model's last step for a
// tree.
constexpr int kMaxTopk = 20, kMaxTreeTokens = 256;

}  // namespace

std::string_view to_string(SpeculativeAlgorithm algorithm) {
  switch (algorithm) {
    case SpeculativeAlgorithm::kNgram:
      return "NGRAM";
    case SpeculativeAlgorithm::kSuffix:
      return "SUFFIX";
    case SpeculativeAlgorithm::kStandalone:
      return "STANDALONE";
    case SpeculativeAlgorithm::kEagle:
      return "EAGLE";
    case SpeculativeAlgorithm::kEagle3:
      return "EAGLE3";
    case SpeculativeAlgorithm::kNextn:
      return "NEXTN";
  }
  return "unknown";
}

SpeculativeAlgorithm parse_speculative_algorithm(std::string_view name) {
  using enum SpeculativeAlgorithm;
  for (const SpeculativeAlgorithm algorithm : {kNgram, kSuffix, kStandalone, kEagle, kEagle3, kNextn})
    if (name == to_string(algorithm)) return algorithm;
  if (name == "ngram") return kNgram;
  if (name == "suffix") return kSuffix;
  constexpr std::string_view kUnsupported[] = {"DFLASH", "DSPARK", "UNO", "MEDUSA"};
  const bool is_known = std::ranges::find(kUnsupported, name) != std::end(kUnsupported);
  fail(is_known ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument, "speculative_algorithm '", name,
       "': expected NGRAM, SUFFIX, STANDALONE, EAGLE, EAGLE3 or NEXTN");
}

bool has_draft_model(SpeculativeAlgorithm algorithm) {
  return algorithm == SpeculativeAlgorithm::kStandalone || has_draft_head(algorithm);
}

bool has_draft_head(SpeculativeAlgorithm algorithm) {
  using enum SpeculativeAlgorithm;
  return algorithm == kEagle || algorithm == kEagle3 || algorithm == kNextn;
}

int longest_draft(const SuffixOptions& options) {
  int longest = 0;
  for (int num_matched = 1; num_matched < options.max_tree_depth; ++num_matched)
    longest = std::max(longest, std::min(options.max_tree_depth - num_matched,
                                         static_cast<int>(options.max_spec_factor * num_matched)));
  return longest;
}

int longest_path(const SpeculativeOptions& options) {
  return options.eagle_topk > 1 ? options.num_steps : options.num_draft_tokens - 1;
}

int num_tree_slots(const SpeculativeOptions& options) {
  if (options.eagle_topk <= 1) return 0;
  return std::max(options.num_draft_tokens - 1, options.eagle_topk * (options.num_steps - 1));
}

int64_t num_candidates(const SpeculativeOptions& options) {
  const int64_t topk = options.eagle_topk;
  return topk + (options.num_steps - 1) * topk * topk;
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
  const bool has_model = options.algorithm && has_draft_model(*options.algorithm);
  const auto require_model = [&](bool given, std::string_view name) {
    require(has_model || !given, name,
            ": requires a speculative_algorithm with a draft model (STANDALONE, EAGLE, EAGLE3 or NEXTN)");
  };
  require_model(!options.draft_model_path.empty(), "speculative_draft_model_path");
  require_model(!options.draft_attention_backend.empty(), "speculative_draft_attention_backend");
  require_model(options.num_steps != 0, "speculative_num_steps");
  require_model(options.eagle_topk != 0, "speculative_eagle_topk");
  require_model(options.adaptive, "speculative_adaptive");
  require(options.adaptive || options.adaptive_config.empty(),
          "speculative_adaptive_config: requires speculative_adaptive");
  require(!options.adaptive || options.num_draft_tokens == 0, "speculative_num_draft_tokens ",
          options.num_draft_tokens,
          ": not with speculative_adaptive, which verifies one token more than it "
          "drafts");
  require(options.num_steps >= 0 && options.num_steps <= 63, "speculative_num_steps ", options.num_steps,
          ": 1 to 63, the tokens that a draft model predicts per step");
  require(options.eagle_topk >= 0 && options.eagle_topk <= kMaxTopk, "speculative_eagle_topk ",
          options.eagle_topk, ": 1 to ", kMaxTopk);
  const bool trees = options.eagle_topk > 1;
  if (trees && options.adaptive)
    fail(ErrorCode::kUnsupported, "speculative_eagle_topk ", options.eagle_topk,
         ": expected 1 with speculative_adaptive");
  require(trees || options.num_steps == 0 || options.num_draft_tokens == 0 ||
              options.num_draft_tokens == options.num_steps + 1,
          "speculative_num_draft_tokens ", options.num_draft_tokens, ": expected ", options.num_steps + 1,
          ", one more than speculative_num_steps");
  require(!trees || options.num_steps == 0 || options.eagle_topk * (options.num_steps - 1) <= kMaxTreeTokens,
          "speculative_num_steps ", options.num_steps, ": at most ",
          kMaxTreeTokens / std::max(1, options.eagle_topk) + 1, " with speculative_eagle_topk ",
          options.eagle_topk);
  require(options.disable_by_batch_size >= 0, "speculative_disable_by_batch_size ",
          options.disable_by_batch_size, ": at least 1");
}

}  // namespace attend
