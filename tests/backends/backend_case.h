// BackendCase: an AttentionCase as an engine would run it: real pools, a model of two layers, a ForwardBatch,
// the prefix stored by earlier steps, the new K/V stored by the backend under test.
//
// What nothing may read is poisoned: unused slots hold NaN, and so do keys of the prefix that no query sees;
// entries of a request row beyond the request's length are huge ids.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attend/attention/backend.h"
#include "tests/backends/device_step.h"
#include "tests/backends/layer_input.h"
#include "tests/kernels/conformance/cases/attention_case.h"
#include "tests/kernels/conformance/cases/case_index.h"
#include "tests/kernels/conformance/cases/new_tokens.h"
#include "tests/kernels/conformance/tolerance.h"

namespace attend::conformance {

// What a model with such attention needs of a backend. `mode`: drafts are an option of their own.
Requirement requirement_of_case(const AttentionCase& c, ForwardMode mode, bool deterministic);

// Whether the case can be a step of a model: causal attention stores its new tokens, so that there are no
// fewer keys than queries.
bool is_a_step(const AttentionCase& c);

// The case without what a backend decides itself: index, slot map, splits.
AttentionCase without_backend_choices(AttentionCase c);

// The reference's result, from K/V that never went through a pool.
Expected expected_result(const AttentionCase& c);

// The arrays that a ForwardBatch views.
struct StepArrays {
  ForwardMode mode = ForwardMode::kExtend;
  int max_seqlen_q = 0;
  std::vector<RequestRow> request_rows;
  std::vector<int32_t> seqlen_kv, cu_seqlen_q, positions;
  std::vector<TokenSlot> out_slots;
  std::vector<uint64_t> tree_mask;

  ForwardBatch batch() const;
};

class BackendCase {
 public:
  // The pools, with the prefix stored. `c` is without backend choices, and a step. On a GPU what the
  // backend reads lies there, while this object's tensors stay the host's.
  BackendCase(const AttentionCase& c, ForwardMode mode, Device device = {});
  BackendCase(const BackendCase&) = delete;

  // As an engine makes it, with limits that the step just meets.
  BackendConfig config(bool deterministic) const;
  std::unique_ptr<AttentionBackend> create(const BackendEntry& entry, bool deterministic) const;

  const AttentionLayer& layer() const { return model_.layers[1]; }
  const StepArrays& step() const { return step_; }
  // q, k, v of the new tokens, and where results go.
  LayerInput input() const;
  // All tokens of the step: plan, store, attend.
  void run(AttentionBackend& backend) const;

  // What is wrong with the results and the pool after run(), or nothing.
  std::string problem(const Expected& expected) const;

  // The tokens [begin, end) of one request as a step of their own, their K/V stored already, with results of
  // its own; whether they have the bits that run() gave.
  bool part_agrees(AttentionBackend& backend, int request, int begin, int end) const;

  std::vector<unsigned char> result_bytes() const;
  void poison_results();

 private:
  struct Rows {  // a tensor and the part of it that is used
    Tensor storage;
    TensorView view;
  };

  Rows make_rows(int64_t num_heads, int64_t head_dim, DType dtype) const;
  std::unique_ptr<KvPool> make_pool(Device device) const;
  void make_request_rows();
  void make_step(ForwardMode mode);
  void make_input();
  void store_prefix();
  void poison_pool();
  void compute(AttentionBackend& backend, const LayerInput& input, const StepArrays& step) const;
  // The bytes of the pool's layer: K, then V.
  std::vector<unsigned char> pool_bytes() const;
  // Whether the pool holds what it held before run(), but for the slots of the new tokens.
  bool rest_of_pool_untouched() const;

  const AttentionCase spec_;
  const NewTokens tokens_;
  const CaseIndex index_;
  std::vector<float> q_values_, k_values_, v_values_, sinks_;
  std::vector<int64_t> cu_seqlen_kv_;
  ModelGeometry model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ReqToTokenPool> requests_;
  std::vector<RequestRow> rows_;  // [num_reqs]
  StepArrays step_;
  Rows q_, k_, v_, out_, lse_;
  std::vector<unsigned char> pool_before_;
  const Device device_;
  std::unique_ptr<DeviceStep> on_gpu_;
};

}  // namespace attend::conformance
