// HybridBackend: one backend for prefill and one for decode, selected by the step's phase.
#pragma once

#include <memory>

#include "attend/attention/backend.h"

namespace attend {

class HybridBackend : public AttentionBackend {
 public:
  HybridBackend(std::unique_ptr<AttentionBackend> prefill, std::unique_ptr<AttentionBackend> decode)
      : prefill_(std::move(prefill)), decode_(std::move(decode)) {}

  void plan(const ForwardBatch& batch, Stream& stream) override;
  bool plan_depends_on_kv_len(int num_reqs) const override {
    return decode_->plan_depends_on_kv_len(num_reqs);
  }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override;
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

 private:
  AttentionBackend& backend_for(const ForwardBatch& batch) {
    return to_phase(batch.mode) == Phase::kPrefill ? *prefill_ : *decode_;
  }

  std::unique_ptr<AttentionBackend> prefill_, decode_;
};

}  // namespace attend
