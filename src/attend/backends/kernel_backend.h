// KernelBackend: runs a kernel family as a BackendSpec specifies. Almost every row of the table uses it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/backends/batch_index.h"
#include "attend/backends/cascade.h"
#include "attend/backends/table.h"
#include "attend/kernels/attention/attention.h"
#include "attend/kernels/attention/attention_plan.h"

namespace attend {

// The views of a batch are in device memory; on the CPU plan() checks their content.
class KernelBackend : public AttentionBackend {
 public:
  // Throws Error(kInvalidArgument) if the pools do not fit the config, and Error(kUnsupported) for layers
  // over the pool that no kernel family supports.
  KernelBackend(const BackendSpec& spec, const BackendContext& context);

  // Throws Error(kInvalidArgument) for a batch beyond the limits, a request row or a slot that does not
  // exist.
  void plan(const ForwardBatch& batch, Stream& stream) override;
  bool plan_depends_on_kv_len(int num_reqs) const override;
  // This and forward() throw Error(kInvalidArgument) for another batch than the planned one.
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override;
  // Throws Error(kInvalidArgument) for a layer that the config's model does not have. Returns immediately if
  // there are no tokens.
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

  // Returns an upper bound of the bytes that the constructor allocates for plan(): it allocates less if a
  // model of windowed and full layers has a single pool.
  static size_t workspace_bytes(const BackendSpec& spec, const BackendConfig& config);

 private:
  // Index of the layers of one slot map (one half of a pool).
  struct PlannedIndex {
    const int32_t* slot_map;
    BatchIndex index;
  };
  struct PlannedWork {
    PlanKey key;
    std::unique_ptr<kernels::AttentionPlan> plan;
  };

  void require_planned(const ForwardBatch& batch) const;
  const kernels::KvIndex& index_for_pool(const LayerKv& kv) const;
  kernels::AttentionPlan& plan_for_layer(const AttentionLayer& layer);
  kernels::AttentionPlan& expanded_plan_for_layer(const AttentionLayer& layer);
  // Layers of the plan attend to the step's shared keys separately from their own keys.
  bool cascades(const PlanKey& key, const ForwardBatch& batch) const;
  kernels::QueryBatch query_batch(const ForwardBatch& batch) const;
  void forward_mha(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                   Stream& stream);
  // Attends again for the tokens of the batch's items: each item is a request of its own, in which tokens
  // also see all keys after them.
  void forward_items(const kernels::AttentionArgs& args, const AttentionLayer& layer,
                     const ForwardBatch& batch, Stream& stream);
  void forward_expanded(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                        Stream& stream);
  void forward_mla(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                   Stream& stream);

  const BackendSpec spec_;
  const BackendConfig config_;
  const TensorView request_table_;
  KvPool& pool_;
  std::vector<PlannedIndex> indices_;
  std::vector<PlannedWork> work_;
  std::vector<PlannedWork> expanded_work_;  // planned by each call
  std::vector<PlannedWork> item_work_;      // layers with bidirectional_items; planned by each call
  std::optional<Cascade> cascade_;
  int planned_reqs_ = -1, planned_tokens_ = -1;  // of the last plan(); -1: no plan
};

}  // namespace attend
