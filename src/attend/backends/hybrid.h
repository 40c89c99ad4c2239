// HybridBackend: one backend for prefill and one for decode, selected by the step's phase. Steps that verify
// drafts run in either one.
#pragma once

#include <memory>

#include "attend/attention/backend.h"

namespace attend {

class HybridBackend : public AttentionBackend {
 public:
  HybridBackend(std::unique_ptr<AttentionBackend> prefill, std::unique_ptr<AttentionBackend> decode,
                Phase verify_phase = Phase::kDecode)
      : prefill_(std::move(prefill)), decode_(std::move(decode)), verify_phase_(verify_phase) {}

  void plan(const ForwardBatch& batch, Stream& stream) override;
  bool plan_depends_on_kv_len(int num_reqs) const override {
    return decode_->plan_depends_on_kv_len(num_reqs) ||
           (verify_phase_ == Phase::kPrefill && prefill_->plan_depends_on_kv_len(num_reqs));
  }
  KvDestination destination(const AttentionLayer& layer, const ForwardBatch& batch) override;
  TensorView index_keys(const AttentionLayer& layer) override { return prefill_->index_keys(layer); }
  void forward(const AttentionLayer& layer, const AttentionInput& input, const ForwardBatch& batch,
               Stream& stream) override;

 private:
  AttentionBackend& backend_for(const ForwardBatch& batch) {
    const Phase phase = batch.mode == ForwardMode::kTargetVerify ? verify_phase_ : to_phase(batch.mode);
    return phase == Phase::kPrefill ? *prefill_ : *decode_;
  }

  std::unique_ptr<AttentionBackend> prefill_, decode_;
  Phase verify_phase_;
};

}  // namespace attend
