// ForwardBatch: one step.
#pragma once

#include <cstdint>
#include <string_view>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

#pragma GCC visibility push(default)
namespace attend {

enum class ForwardMode : uint8_t {
  kExtend,        // new tokens of prompts, after a stored prefix or none
  kDecode,        // one new token per request
  kMixed,         // extends and decodes together
  kTargetVerify,  // draft tokens checked by the target model (chain, or tree with a mask)
  kDraftExtend,   // the draft model takes in what was accepted
  kIdle,          // no requests
};
std::string_view to_string(ForwardMode mode);

// Prefill backends run kExtend, kMixed and kDraftExtend; decode backends kDecode, kTargetVerify and kIdle.
enum class Phase : uint8_t { kPrefill, kDecode };
std::string_view to_string(Phase phase);
Phase phase_of(ForwardMode mode);

// Padded; views at fixed addresses, in memory of the backend's device, owned and uploaded by the runner.
//
// seqlen_kv counts every key that is visible after this step's store, in every mode. Pad requests have
// request row 0 and length 1; pad tokens have slot -1, and their output is zero.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kIdle;
  int num_reqs = 0;
  int num_tokens = 0;
  int max_seqlen_q = 0;                      // an upper bound
  View<const RequestRow> request_rows = {};  // [num_reqs]
  View<const int32_t> seqlen_kv = {};        // [num_reqs]
  View<const int32_t> cu_seqlen_q = {};      // [num_reqs + 1]
  View<const int32_t> positions = {};        // [num_tokens]
  View<const TokenSlot> out_slots = {};      // [num_tokens]; -1: do not store
  View<const uint64_t> tree_mask = {};       // [num_tokens, ceil(max_seqlen_q / 64)]; empty: causal
  // A promise, with which attention may look up and read keys before the launches before it have ended:
  // nobody writes a request's keys before its new tokens in this step (as would be where a prefix is shared
  // in the step that computes it), and between plan() and each forward() there is a launch that waits for the
  // one before it before it lets the next one start. norm_qkv_rope_store(), linear() and the stores are such;
  // norm_rope_store() alone is not.
  bool prefix_ready = false;
};

}  // namespace attend
#pragma GCC visibility pop
