// AttentionCall: one attention call from Python. It derives arrays, stores new keys, plans, and computes
// attention on the caller's stream.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/kv_store/batch_arrays.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend::python {

// Arguments of a call, converted for the kernels. All tensors are on one device.
struct AttentionCall {
  TensorView q;                          // [num_tokens, num_q_heads, head_dim]
  TensorView q_rope;                     // MLA: [num_tokens, num_q_heads, rope_dim]; otherwise empty
  TensorView out;                        // [num_tokens, num_q_heads, head_dim_v]
  TensorView lse;                        // [num_tokens, num_q_heads]; empty: not requested
  float empty_lse = kernels::kEmptyLse;  // absorbed attention: LSE of a token without visible keys
  // MLA: k is the latent [num_pages, page_size, rank + rope_dim], and v is empty. An index of contiguous keys
  // without indptr uses the derived indptr.
  kernels::KvView kv;
  // [num_new_tokens, num_kv_heads, head_dim]: appended before attention; empty: none.
  TensorView k_new, v_new;
  bool new_keys_are_scaled = false;  // stored as they are, not divided by the descales

  kernels::BatchSource source;
  View<int32_t> key_slots;  // memory for the slots of keys after a leftpad, which are looked up individually
  View<const int32_t> cu_seqlen_q, seqlen_kv;          // in the kernels' form; empty: derived from `source`
  std::string_view cu_seqlen_q_name = "cu_seqlens_q";  // the caller's name, for messages
  int max_seqlen_q = 0;
  int num_tokens = 0;  // upper bound over all requests, if only a plan is made and there is no q
  View<const uint64_t> tree_mask;
  int tree_mask_words = 0;
  View<const int32_t> positions;

  kernels::AttentionMask attention_mask;
  kernels::ScoreRule score;
  kernels::HeadScales q_scales, k_scales, v_scales;  // for fp8 queries
  kernels::SplitRule split_rule = kernels::SplitRule::kBalanced;
  int num_workers = 0;  // number of workers of a balanced plan; 0: all

  // Separate launches before the call that produce q and k_new, and after it that scale `out`.
  std::optional<kernels::RopeRowsArgs> rope_q, rope_k_new, scale_out;
  // Descales of q, K and V if rope_q and scale_out are used only for them: attention may apply them itself.
  struct Descaled {
    kernels::HeadScales q, k, v;
  };
  std::optional<Descaled> descaled;

  bool is_mla() const { return !q_rope.empty(); }
  bool appends() const { return !k_new.empty(); }
  // Returns true if attention may store the new keys itself: every request has queries and the same number of
  // new keys after lengths on the device, and no array must be derived before.
  bool appends_plainly() const {
    return appends() && !is_mla() && source.seqlen_new.cu == nullptr && source.seqlen_q.cu == nullptr &&
           source.seqlen_cached.per_request != nullptr && source.leftpad == nullptr &&
           source.seqused_q == nullptr && !cu_seqlen_q.empty() && !derives_first_key() &&
           !rope_q.has_value() && !rope_k_new.has_value();
  }
  int64_t num_new_tokens() const { return appends() ? k_new.shape[0] : 0; }
  // Returns true if the first key of each request is derived: for dense rows that are not contiguous, for
  // keys after a leftpad, and if each request is split into two (seqused_q).
  bool derives_first_key() const {
    const bool contiguous = kv.index.kind == kernels::KvIndexKind::kContiguous;
    return !kv.k.empty() && (source.seqused_q != nullptr ||
                             (contiguous && (kv.index.indptr == nullptr || source.leftpad != nullptr)));
  }
};

// Returns the number of value columns that one attention call computes: all, or equal parts if the kernels do
// not support the width.
int columns_at_once(int64_t head_dim_qk, int64_t head_dim_v);
int columns_at_once(const AttentionCall& call);

// Returns the limits of a plan for exactly this call. Reads the lengths on the CPU.
kernels::AttentionPlanLimits make_limits(const AttentionCall& call, Device device);

// A plan and the arrays of a batch. The constructor allocates all memory.
class Workspace {
 public:
  Workspace(const kernels::AttentionPlanLimits& limits, int64_t num_new_tokens, Device device);

  // Requested limits.
  const kernels::AttentionPlanLimits& limits() const { return limits_; }
  int64_t num_new_tokens() const { return new_slots_.shape(0); }
  // Number of plans made so far, to check whether a plan is still the last one.
  int64_t num_plans() const { return num_plans_; }
  // True if work on it was queued on more than one stream, so that no single stream determines its
  // completion.
  bool on_several_streams() const { return on_several_streams_; }
  // For calls that share a plan from several threads, since attend() writes to it.
  std::mutex& in_use() { return in_use_; }

  // Derives missing lengths and, if the call has keys, their positions; appends new keys in the same launch;
  // then plans.
  void plan(const AttentionCall& call, Stream& stream);
  // Runs plan() and attend() of a call with a plan that is not shared.
  void plan_and_attend(const AttentionCall& call, Stream& stream);
  // Derives positions of keys and appends new ones, for a call that was planned without its keys.
  void place_keys(const AttentionCall& call, Stream& stream);
  // Computes attention with the lengths of the last plan().
  void attend(const AttentionCall& call, Stream& stream);

 private:
  // Runs everything in one launch if attention can store the new keys; otherwise returns false.
  bool append_and_attend(const AttentionCall& call, Stream& stream);
  // Computes attention without separate launches for descales if supported; otherwise returns false.
  bool attend_descaled(const AttentionCall& call, const kernels::KvView& kv, Stream& stream);
  kernels::AttentionArgs attention_args(const AttentionCall& call, const kernels::KvView& kv) const;
  // Runs the work before planning.
  void prepare(const AttentionCall& call, Stream& stream);
  kernels::BatchArrays wanted_arrays(const AttentionCall& call, bool wants_lengths) const;
  static kernels::QueryBatch make_batch(const AttentionCall& call, View<const int32_t> cu_seqlen_q,
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
