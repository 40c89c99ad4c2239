// ForwardBatch: one step.
#pragma once

#include <cstdint>
#include <optional>
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
Phase to_phase(ForwardMode mode);

// What the runner knows of the keys that requests had before a step: how many, on the host, and where. Models
// that make keys and values of cached latent rows need it.
struct PrefixInfo {
  int64_t num_kv_tokens = 0;       // sum of seqlen_kv
  int64_t num_pairs = 0;           // of a new token and a key that it sees, causally
  int max_prefix_len = 0;          // of any request: seqlen_kv without its new tokens
  const int32_t* table = nullptr;  // BackendContext::request_table
  int64_t table_stride = 0;        // elements

  // One more request, of so many keys, of which the last are new.
  void add(int seqlen_kv, int seqlen_q);
};

// Of a decode step: the first keys of its first `num_reqs` requests are the same ones, in the same slots, so
// that a backend may attend to them once for all of these (cascade attention). Whole pages, and fewer than
// any of them has.
struct SharedKeys {
  int num_keys = 0;                      // 0: none
  int num_reqs = 0;                      // that share them
  View<const int32_t> seqlen_kv = {};    // [1] on the device: num_keys
  View<const int32_t> cu_seqlen_q = {};  // [2] on the device: 0, num_reqs
  // [num_reqs of the batch] on the device: keys of each request without shared ones, and where these begin:
  // an element of BackendContext::request_table.
  View<const int32_t> suffix_seqlen_kv = {}, suffix_offsets = {};
};

// Padded; views at fixed addresses, in memory of the backend's device, owned and uploaded by the runner.
//
// seqlen_kv counts every key that is visible after this step's store, in every mode. Pad requests have
// request row 0 and length 1; pad tokens have slot -1, and their output is zero.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kIdle;
  int num_reqs = 0;
  int num_tokens = 0;
  int max_seqlen_q = 0;                      // an upper bound
  int max_seqlen_kv = 0;                     // an upper bound, as kernels::QueryBatch has it; 0: none known
  View<const RequestRow> request_rows = {};  // [num_reqs]
  View<const int32_t> seqlen_kv = {};        // [num_reqs]
  View<const int32_t> cu_seqlen_q = {};      // [num_reqs + 1]
  View<const int32_t> positions = {};        // [num_tokens]
  View<const TokenSlot> out_slots = {};      // [num_tokens]; -1: do not store
  View<const uint64_t> tree_mask = {};       // [num_tokens, ceil(max_seqlen_q / 64)]; empty: causal
  // What kernels/attention/attention_batch.h says of it. False where a request reads keys that another one
  // computes in this step, as when both begin alike.
  bool prefix_ready = false;
  std::optional<PrefixInfo> prefix = {};  // none: the host does not know
  SharedKeys shared = {};                 // none: the host does not know, or it would not pay
};

}  // namespace attend
#pragma GCC visibility pop
