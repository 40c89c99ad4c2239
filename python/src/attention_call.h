// One call of attention from Python: arrays derived, new keys stored, planned and attended, on the caller's
// stream.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/batch_arrays.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend::python {

// What a call is about, in the kernels' words. Tensors lie on one device.
struct AttentionCall {
  TensorView q;                          // [num_tokens, num_q_heads, head_dim]
  TensorView q_rope;                     // MLA: [num_tokens, num_q_heads, rope_dim]; otherwise empty
  TensorView out;                        // [num_tokens, num_q_heads, head_dim_v]
  TensorView lse;                        // [num_tokens, num_q_heads]; empty: not wanted
  float empty_lse = kernels::kEmptyLse;  // absorbed attention: LSE of a token that sees no key
  // MLA: k is the latent [num_pages, page_size, rank + rope_dim], and there is no v. An index of contiguous
  // keys without indptr takes the derived one.
  kernels::KvView kv;
  // [num_new_tokens, num_kv_heads, head_dim]: appended before attending; empty: none.
  TensorView k_new, v_new;
  bool new_keys_are_scaled = false;  // they are stored as they are, not divided by the descales

  kernels::BatchSource source;
  View<int32_t> key_slots;  // memory for where keys behind a leftpad lie, which are looked up one by one
  View<const int32_t> cu_seqlen_q, seqlen_kv;  // as the kernels take them; empty: derived from `source`
  std::string_view cu_seqlen_q_name = "cu_seqlens_q";  // the caller's, for messages
  int max_seqlen_q = 0;
  int num_tokens = 0;  // of all requests at most, where only a plan is made and there is no q
  View<const uint64_t> tree_mask;
  int tree_mask_words = 0;
  View<const int32_t> positions;

  kernels::AttentionMask attention_mask;
  kernels::ScoreRule score;
  kernels::HeadScales q_scales, k_scales, v_scales;  // of queries in fp8
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int num_workers = 0;  // that a balanced plan shares the work among; 0: all

  // What q and k_new are made from before the call, and where `out` goes behind it, in launches of their own.
  std::optional<kernels::RopeRowsArgs> rope_q, rope_k_new, scale_out;
  // Descales of q, K and V, where rope_q and scale_out are for them alone: attention may take them itself.
  struct Descaled {
    kernels::HeadScales q, k, v;
  };
  std::optional<Descaled> descaled;

  bool is_mla() const { return !q_rope.empty(); }
  bool appends() const { return !k_new.empty(); }
  // Whether every request has queries and as many new keys, behind lengths that lie on the device, and
  // nothing is to be derived or made before: what attention may store itself.
  bool appends_plainly() const {
    return appends() && !is_mla() && source.seqlen_new.cu == nullptr && source.seqlen_q.cu == nullptr &&
           source.seqlen_cached.per_request != nullptr && source.leftpad == nullptr &&
           source.seqused_q == nullptr && !cu_seqlen_q.empty() && !derives_first_key() &&
           !rope_q.has_value() && !rope_k_new.has_value();
  }
  int64_t num_new_tokens() const { return appends() ? k_new.shape[0] : 0; }
  // Whether it is derived where each request's keys begin: of dense rows that are not one behind another,
  // behind a leftpad, and where requests are two each (seqused_q).
  bool derives_first_key() const {
    const bool contiguous = kv.index.kind == kernels::KvIndexKind::kContiguous;
    return !kv.k.empty() && (source.seqused_q != nullptr ||
                             (contiguous && (kv.index.indptr == nullptr || source.leftpad != nullptr)));
  }
};

// Columns of values that are attended at once: all, or equal parts of what is wider than the kernels take.
int columns_at_once(int64_t head_dim_qk, int64_t head_dim_v);
int columns_at_once(const AttentionCall& call);

// The limits of a plan for exactly this call. On the CPU reads the lengths.
kernels::AttentionPlanLimits limits_of(const AttentionCall& call, Device device);

// A plan, and the arrays of a batch. Allocates everything in its constructor.
class Workspace {
 public:
  Workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens, Device device);

  // As they were asked for.
  const kernels::AttentionPlanLimits& limits() const { return limits_; }
  int64_t num_new_tokens() const { return new_slots_.shape(0); }
  // How often it was planned in: whether a plan is still the last.
  int64_t num_plans() const { return num_plans_; }
  // Whether work with it was queued on more than one stream: one of them does not say when all is done.
  bool on_several_streams() const { return on_several_streams_; }
  // For calls that share a plan from several threads: attend() writes into it.
  std::mutex& in_use() { return in_use_; }

  // Derives what the call does not give of its lengths and, when it has keys, where they lie, and appends the
  // new ones, all in one launch; and plans.
  void plan(const AttentionCall& call, Stream& stream);
  // plan() and attend() of a call whose plan serves no other.
  void plan_and_attend(const AttentionCall& call, Stream& stream);
  // Derives where keys lie and appends the new ones: for a call that was planned without its keys.
  void place_keys(const AttentionCall& call, Stream& stream);
  // Attends, for the lengths of the last plan().
  void attend(const AttentionCall& call, Stream& stream);

 private:
  // Does all of it in one launch, where attention stores the new keys; otherwise nothing.
  bool append_and_attend(const AttentionCall& call, Stream& stream);
  // Attends without the launches for descales, where attention takes them; otherwise does nothing.
  bool attend_descaled(const AttentionCall& call, const kernels::KvView& kv, Stream& stream);
  kernels::AttentionArgs attention_args(const AttentionCall& call, const kernels::KvView& kv) const;
  // What comes before planning.
  void prepare(const AttentionCall& call, Stream& stream);
  kernels::BatchArrays wanted_arrays(const AttentionCall& call, bool wants_lengths) const;
  static kernels::QueryBatch batch_of(const AttentionCall& call, View<const int32_t> cu_seqlen_q,
                                      View<const int32_t> seqlen_kv);
  void note(const Stream& stream);

  kernels::AttentionPlanLimits limits_;
  kernels::AttentionPlan plan_;
  Tensor cu_seqlen_q_, seqlen_kv_, first_key_, new_slots_;
  kernels::QueryBatch batch_;  // of the last plan()
  int64_t num_plans_ = 0;
  void* stream_handle_ = nullptr;  // of the last call
  bool on_several_streams_ = false;
  std::mutex in_use_;
};

}  // namespace attend::python
