// Speculative decoding: options of drafts, and counts of accepted tokens. Names follow SGLang's server
// arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/attention/forward_batch.h"

#pragma GCC visibility push(default)
namespace attend {

enum class SpeculativeAlgorithm : uint8_t {
  kNgram,  // tokens that followed an earlier occurrence of the request's last tokens (prompt lookup)
  // The most frequent continuation of the request's last tokens, in its own text and in the outputs of all
  // requests (suffix decoding).
  kSuffix,
  kStandalone,  // most likely tokens of a smaller model with the same vocabulary
  // Most likely tokens of a draft head, which reads hidden states of the target: EAGLE, EAGLE-2 or
  // multi-token prediction; EAGLE-3; multi-token prediction.
  kEagle,
  kEagle3,
  kNextn,
};
std::string_view to_string(SpeculativeAlgorithm algorithm);
// Throws Error for a name that to_string() does not return: kUnsupported for SGLang's other algorithms, else
// kInvalidArgument.
SpeculativeAlgorithm parse_speculative_algorithm(std::string_view name);
// Returns whether a second model predicts the drafts.
bool has_draft_model(SpeculativeAlgorithm algorithm);
// Returns whether this model is a draft head.
bool has_draft_head(SpeculativeAlgorithm algorithm);

// Options of kSuffix, with vLLM's names and defaults (suffix_decoding_*).
struct SuffixOptions {
  // Longest run of tokens that is counted: matched tokens and drafted ones together, 2 to 256.
  int max_tree_depth = 24;
  int max_cached_requests = 10'000;  // requests with outputs that are kept; 0: a request's own text only
  double max_spec_factor = 1.0;      // a draft has at most this number of tokens per matched token
  double min_token_prob = 0.1;       // a draft ends before its estimated probability is lower
};

// Returns the length of the longest draft: it and its match have at most max_tree_depth tokens.
int longest_draft(const SuffixOptions& options);

// Numbers of draft steps for batches of about `batch_size` requests, with SGLang's names and defaults.
struct AdaptiveRow {
  int batch_size = 1;
  std::vector<int> candidate_steps = {};  // in ascending order; 0: no drafts
  double ema_alpha = 0.2;                 // weight of a batch in the mean number of accepted tokens
  int warmup_batches = 10;                // before the first change
  int update_interval = 5;                // batches between changes
  // Candidate c gives way to the next larger one if the mean exceeds c - 0.5 + up_hysteresis, and to the next
  // smaller one, d, if the mean is at most max(d, 1) - 0.5 + down_hysteresis.
  double up_hysteresis = 0.0, down_hysteresis = 0.0;
};

struct SpeculativeOptions {
  std::optional<SpeculativeAlgorithm> algorithm = {};  // none: no speculation
  // Tokens of a request that a step verifies, including the last known token: 2 to 64. 0: 12; with kSuffix
  // what its longest draft needs, at most 64; with a draft model num_steps + 1, or 8 with eagle_topk above 1.
  int num_draft_tokens = 0;
  // Draft models: model directory or GGUF file (kEagle, kNextn: empty for a layer in the target's files); its
  // attention backend (empty: chosen by the resolver); the number of tokens that it predicts after one
  // another per step and request, 1 to 63 (0: by the target's architecture, as SGLang); and the number of
  // candidates per token, up to 20 (0: 1). With more than one, drafts are trees: each step of the draft model
  // keeps the eagle_topk most likely paths, and the num_draft_tokens - 1 most likely tokens of all steps are
  // verified.
  std::filesystem::path draft_model_path = {};
  std::string draft_attention_backend = {};
  int num_steps = 0;
  int eagle_topk = 0;
  // Draft models: the number of steps follows batch size and acceptance, with num_steps at the start. The
  // rows of the file `adaptive_config`, or SGLang's rows; an engine sets adaptive_rows.
  bool adaptive = false;
  std::filesystem::path adaptive_config = {};
  std::vector<AdaptiveRow> adaptive_rows = {};
  // Backend that verifies drafts, and computes accepted tokens in a draft model: that of decode or of
  // prefill. Only if they differ.
  Phase attention_mode = Phase::kDecode;
  // kNgram: largest and smallest number of last tokens that are searched for.
  int ngram_max_match_window_size = 12;
  int ngram_min_match_window_size = 2;
  SuffixOptions suffix = {};
  // Steps with more decoding requests than this do not draft. 0: chosen by device.
  int disable_by_batch_size = 0;
  // Benches: mean number of tokens that a verification yields, from 1 to num_draft_tokens, whatever tokens
  // are drafted. Outputs are then not those of the model. 0: drafts are verified.
  double synthetic_accept_length = 0.0;
};

// Returns the maximum number of drafted tokens after one another. Here and below, an engine has set the
// sizes.
int longest_path(const SpeculativeOptions& options);
// Returns the number of token slots of a tree, which hold the tokens that the draft model reads and later
// those that are verified; 0: drafts are chains.
int num_tree_slots(const SpeculativeOptions& options);
// Returns the number of tokens that a draft model with eagle_topk candidates predicts in num_steps steps.
int64_t num_candidates(const SpeculativeOptions& options);

// Throws Error(kInvalidArgument) naming the option, its value and what is accepted.
void check(const SpeculativeOptions& options);

// Counts of drafted and accepted tokens of one request or of all requests.
struct DraftCounts {
  int64_t num_steps = 0;     // pairs of a step and a request that decodes in it
  int64_t num_drafted = 0;   // drafted tokens
  int64_t num_accepted = 0;  // drafted tokens that the model also chose

  void add(int drafted, int accepted) {
    ++num_steps;
    num_drafted += drafted;
    num_accepted += accepted;
  }
  DraftCounts operator-(const DraftCounts& before) const {
    return {num_steps - before.num_steps, num_drafted - before.num_drafted,
            num_accepted - before.num_accepted};
  }
  // Mean number of tokens per step and request: 1 without drafts; 0 without steps.
  double accept_length() const {
    return num_steps == 0 ? 0.0 : 1.0 + static_cast<double>(num_accepted) / static_cast<double>(num_steps);
  }
  // Share of drafted tokens that were accepted; 0 without drafted tokens.
  double accept_rate() const {
    return num_drafted == 0 ? 0.0 : static_cast<double>(num_accepted) / static_cast<double>(num_drafted);
  }
};

}  // namespace attend
#pragma GCC visibility pop
