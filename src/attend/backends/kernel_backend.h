// KernelBackend: one class that runs a kernel family by a spec. Almost every row of the table is one.
#pragma once

#include <memory>
#include <vector>

#include "attend/attention/backend.h"
#include "attend/backends/spec.h"
#include "attend/kernels/attention_plan.h"

namespace attend {

class KernelBackend : public AttentionBackend {
 public:
  KernelBackend(const BackendSpec& spec, const BackendContext& context);

  void plan(const ForwardBatch& batch, Stream& stream) override;
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

  // Bytes that the constructor allocates.
  static size_t workspace_bytes(const BackendSpec& spec, const BackendConfig& config);

 private:
  // What plan() derives for the layers of one slot map (one half of a pool): the index that their kernels
  // read.
  struct PlannedIndex {
    const int32_t* slot_map;
    std::vector<int32_t> table;   // page table or CSR indices
    std::vector<int32_t> indptr;  // CSR
    kernels::KvIndex index;
  };
  struct PlannedWork {
    kernels::Visibility visibility;
    std::unique_ptr<kernels::AttentionPlan> plan;
  };

  void check_batch(const ForwardBatch& batch) const;
  void build_index(const ForwardBatch& batch, PlannedIndex& planned);
  PlannedIndex& index_of(const int32_t* slot_map);
  kernels::AttentionPlan& work_of(const kernels::Visibility& visibility);
  kernels::QueryBatch query_batch(const ForwardBatch& batch) const;
  void forward_mha(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                   Stream& stream);
  void forward_mla(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
                   Stream& stream);

  BackendSpec spec_;
  const BackendConfig config_;
  const ReqToTokenPool& requests_;
  KvPool& pool_;
  std::vector<PlannedIndex> indices_;
  std::vector<PlannedWork> work_;
};

// The factory functions of rows whose data is a BackendSpec.
std::unique_ptr<AttentionBackend> create_kernel_backend(const BackendEntry& entry,
                                                        const BackendContext& context);
WorkspaceSize kernel_backend_workspace(const BackendEntry& entry, const BackendConfig& config);

}  // namespace attend
