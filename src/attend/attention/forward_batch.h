// ForwardBatch: the batch of one step.
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
  kDraftExtend,   // the draft model processes the accepted tokens
  kIdle,          // no requests
};
std::string_view to_string(ForwardMode mode);

// Prefill backends run kExtend, kMixed and kDraftExtend; decode backends kDecode, kTargetVerify and kIdle.
enum class Phase : uint8_t { kPrefill, kDecode };
std::string_view to_string(Phase phase);
Phase to_phase(ForwardMode mode);

// Keys that requests had before a step: their counts, on the host, and their slots. Models that compute keys
// and values from cached latent rows require it.
struct PrefixInfo {
  int64_t num_kv_tokens = 0;       // sum of seqlen_kv
  int64_t num_pairs = 0;           // pairs of a new token and a key that it sees with a causal mask
  int max_prefix_len = 0;          // largest seqlen_kv without new tokens
  const int32_t* table = nullptr;  // BackendContext::request_table
  int64_t table_stride = 0;        // elements

  // Adds a request with `seqlen_kv` keys, of which the last `seqlen_q` are new.
  void add(int seqlen_kv, int seqlen_q);
};

// Shared prefix of a decode step: the first `num_keys` keys of the first `num_reqs` requests are in the same
// slots, so a backend may attend to them once for all of these requests (cascade attention). `num_keys` is a
// multiple of the page size and less than each request's seqlen_kv.
struct SharedKeys {
  int num_keys = 0;                      // 0: none
  int num_reqs = 0;                      // requests that share the keys
  View<const int32_t> seqlen_kv = {};    // [1] on the device: num_keys
  View<const int32_t> cu_seqlen_q = {};  // [2] on the device: 0, num_reqs
  // [num_reqs of the batch] on the device: number of keys of each request without the shared keys, and the
  // index of the first of them in BackendContext::request_table.
  View<const int32_t> suffix_seqlen_kv = {}, suffix_offsets = {};
};

// Tokens of an image that see each other (AttentionLayer::bidirectional_items): consecutive tokens of a
// request and of the batch.
struct BidirectionalItem {
  int request_idx = 0;  // in the batch
  int first_token = 0, num_tokens = 0;
  int end = 0;                           // position after the last token
  View<const int32_t> cu_seqlen_q = {};  // [2] on the device: 0, num_tokens
  View<const int32_t> seqlen_kv = {};    // [1] on the device: end
};

// A padded batch; its views are at fixed addresses, in memory of the backend's device, owned and uploaded by
// the runner.
//
// seqlen_kv counts every key that is visible after this step's store, in every mode. Pad requests have
// request row 0 and length 1; pad tokens have slot -1, and their output is zero.
struct ForwardBatch {
  ForwardMode mode = ForwardMode::kIdle;
  int num_reqs = 0;
  int num_tokens = 0;
  int max_seqlen_q = 0;                      // an upper bound
  int max_seqlen_kv = 0;                     // an upper bound, see kernels::QueryBatch; 0: unknown
  View<const RequestRow> request_rows = {};  // [num_reqs]
  View<const int32_t> seqlen_kv = {};        // [num_reqs]
  View<const int32_t> cu_seqlen_q = {};      // [num_reqs + 1]
  View<const int32_t> positions = {};        // [num_tokens]
  View<const TokenSlot> out_slots = {};      // [num_tokens]; -1: do not store
  View<const uint64_t> tree_mask = {};       // [num_tokens, ceil(max_seqlen_q / 64)]; empty: causal
  View<const BidirectionalItem> items = {};  // on the host; without a tree mask
  // Described in kernels/attention/attention_batch.h. False if a request reads keys that another request
  // computes in this step, for example if both have the same prefix.
  bool prefix_ready = false;
  std::optional<PrefixInfo> prefix = {};  // none: unknown on the host
  SharedKeys shared = {};                 // none: unknown on the host, or not profitable
};

}  // namespace attend
#pragma GCC visibility pop
