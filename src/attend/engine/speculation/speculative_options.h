// Speculative decoding: options of drafts, and counts of accepted tokens. Names follow SGLang's server
// arguments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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

struct SpeculativeOptions {
  std::optional<SpeculativeAlgorithm> algorithm = {};  // none: no speculation
  // Tokens of a request that a step verifies, including the last known token: 2 to 64. 0: 12; with kSuffix
  // what its longest draft needs, at most 64; with a draft model num_steps + 1.
  int num_draft_tokens = 0;
  // Draft models: model directory or GGUF file (kEagle, kNextn: empty for a layer in the target's files); its
  // attention backend (empty: chosen by the resolver); the number of tokens that it predicts per step and
  // request, 1 to 63 (0: by the target's architecture, as SGLang); and the number of candidates per token (0:
  // 1; no other number is supported).
  std::filesystem::path draft_model_path = {};
  std::string draft_attention_backend = {};
  int num_steps = 0;
  int eagle_topk = 0;
  // kNgram: largest and smallest number of last tokens that are searched for.
  int ngram_max_match_window_size = 12;
  int ngram_min_match_window_size = 2;
  SuffixOptions suffix = {};
  // Steps with more decoding requests than this do not draft. 0: chosen by device.
  int disable_by_batch_size = 0;
};

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
