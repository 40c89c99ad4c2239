// SparseBackend: MLA over the keys that an indexer selects (kernels/indexer). Steps without a selection run
// as in KernelBackend. All layers of a model select the same number of keys, so one plan serves all of them,
// and a layer without an indexer of its own finds the last selection in it.
#pragma once

#include <memory>

#include "attend/attention/backend.h"
#include "attend/backends/kernel_backend.h"
#include "attend/kernels/indexer/sparse_mla.h"

namespace attend {

class SparseBackend : public AttentionBackend {
 public:
  // Throws the errors of KernelBackend, and Error(kUnsupported) for a GPU and for layers with different
  // numbers of keys or heads.
  explicit SparseBackend(const BackendContext& context);

  void plan(const ForwardBatch& batch, Stream& stream) override;
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override;
  TensorView index_keys(const AttentionLayer& layer) override;
  // Throws Error(kInvalidArgument) for a selection that the step does not have.
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

  static std::unique_ptr<AttentionBackend> create(const BackendContext& context);
  static size_t workspace_bytes(const BackendConfig& config);

 private:
  KernelBackend dense_;
  const BackendConfig config_;
  const TensorView request_table_;
  KvPool& pool_;
  kernels::SparseMlaPlan sparse_;
  bool is_planned_ = false;     // this step selects keys
  bool has_selection_ = false;  // a layer of this step has selected keys
};

}  // namespace attend
