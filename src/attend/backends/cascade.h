// Cascade attention: the keys that the first requests of a decode step share are attended to once, with the
// queries of these as if they were one request's, then each request's own keys, and both results are merged
// by LSE.
//
// Of n requests that share s keys, s instead of n s are read. It costs two launches more a layer, and the
// bits of a token depend on who shares its step: not for deterministic inference.
#pragma once

#include <memory>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/backends/batch_index.h"
#include "attend/backends/plan_key.h"
#include "attend/backends/table.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/attention_plan.h"

namespace attend {

// The step's queries over what each request does not share.
kernels::QueryBatch suffix_queries(kernels::QueryBatch queries, const SharedKeys& shared);

class Cascade {
 public:
  // Whether batches may share keys, and a layer is there whose queries see all of them: those with a window,
  // with chunks, with sinks and over latent rows are attended to as in other steps.
  static bool applies_to(const BackendConfig& config);
  // For a config that it applies to. Allocates everything, num_bytes() bytes at most; throws
  // Error(kOutOfMemory).
  Cascade(const BackendSpec& spec, const BackendConfig& config);
  static size_t num_bytes(const BackendSpec& spec, const BackendConfig& config);

  bool serves(const PlanKey& key) const;
  // Of the shared keys, and where each request's own ones lie. The own keys' plan is the backend's, over
  // suffix_queries(). `table`: BackendContext::request_table.
  void plan(const ForwardBatch& batch, const int32_t* table, Stream& stream);
  // Writes whole.out and, where it is wanted, whole.lse as kernels::attention(whole) does, but for the last
  // bits. `suffix_plan` was planned over suffix_queries(). Throws Error(kInternal) for heads that serves()
  // does not have.
  void attend(const kernels::AttentionArgs& whole, kernels::AttentionPlan& suffix_plan,
              const SharedKeys& shared, Stream& stream);

 private:
  struct PlannedKeys {
    PlanKey key;
    std::unique_ptr<kernels::AttentionPlan> plan;
  };

  std::vector<PlannedKeys> work_;
  BatchIndex suffix_index_;
  int max_context_len_;
  // Results over the shared keys, of max_reqs tokens, and the LSE over own keys where the caller wants none.
  Tensor out_, lse_, suffix_lse_;
};

}  // namespace attend
