// Cascade attention. Keys that the first requests of a decode step share are attended to once, with the
// queries of these requests as those of a single request. Then each request attends to its own keys, and both
// results are merged by LSE.
//
// If n requests share s keys, s keys are read instead of n s. Each layer needs two more launches, and the
// bits of a token depend on the other requests of its step, so deterministic inference does not use it.
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

// Returns the step's queries over the keys that each request does not share.
kernels::QueryBatch suffix_queries(kernels::QueryBatch queries, const SharedKeys& shared);

class Cascade {
 public:
  // Returns true if batches may share keys and at least one layer's queries see all of them. Layers with a
  // window, with chunks, with sinks or with latent rows run as in other steps.
  static bool applies_to(const BackendConfig& config);
  // Requires applies_to(config). Allocates everything, num_bytes() bytes at most; throws
  // Error(kOutOfMemory).
  Cascade(const BackendSpec& spec, const BackendConfig& config);
  static size_t num_bytes(const BackendSpec& spec, const BackendConfig& config);

  bool serves(const PlanKey& key) const;
  // Plans attention to the shared keys, and builds the index of each request's own keys. The backend plans
  // attention to the own keys, over suffix_queries(). `table`: BackendContext::request_table.
  void plan(const ForwardBatch& batch, const int32_t* table, Stream& stream);
  // Writes whole.out and, unless it is empty, whole.lse like kernels::attention(whole), except for the last
  // bits. `suffix_plan` was planned over suffix_queries(). Throws Error(kInternal) for heads for
  // which serves() returns false.
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
  // Results over the shared keys of max_reqs tokens, and the LSE over own keys if the caller requests none.
  Tensor out_, lse_, suffix_lse_;
};

}  // namespace attend
