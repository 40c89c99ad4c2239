// BackendCase: an AttentionCase as an engine runs it: real pools, a model of two layers, a ForwardBatch, a
// prefix stored by earlier steps, and new K/V stored by the backend under test.
//
// Memory that must not be read is poisoned: unused slots and prefix keys outside every mask contain NaN, and
// entries of a request row after the request's length are huge ids.
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

// Requirement of a model with the attention of this case. Speculative decoding follows from `mode`.
Requirement requirement_of_case(const AttentionCase& c, ForwardMode mode, bool deterministic);

// Returns true if the case can be a step of a model. Causal attention stores its new tokens, so the keys
// cannot be fewer than the queries.
bool is_valid_step(const AttentionCase& c);

// Removes what a backend chooses itself: index, slot map, splits.
AttentionCase without_backend_choices(AttentionCase c);

// Result of the reference from K/V outside any pool.
Expected expected_result(const AttentionCase& c);

// Arrays that a ForwardBatch views.
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
  // Creates the pools with the stored prefix. `c` is a valid step without backend choices. For a GPU, the
  // backend reads copies there, and the tensors of this object stay on the host.
  BackendCase(const AttentionCase& c, ForwardMode mode, Device device = {});
  BackendCase(const BackendCase&) = delete;

  // Config as an engine creates it, with limits that the step reaches.
  BackendConfig config(bool deterministic) const;
  // Layers have an indexer that selects all keys if the backend requires one.
  std::unique_ptr<AttentionBackend> create(const BackendEntry& entry, bool deterministic) const;

  const AttentionLayer& layer() const { return model_.layers[1]; }
  const StepArrays& step() const { return step_; }
  // q, k, v of the new tokens, and the result tensors.
  LayerInput input() const;
  // Plans, stores and attends for all tokens of the step.
  void run(AttentionBackend& backend) const;

  // Returns what is wrong with the results and the pool after run(), or an empty string.
  std::string problem(const Expected& expected) const;

  // Runs the tokens [begin, end) of one request as a separate step with its own results. Their K/V is stored
  // already. Returns true if the bits equal those of run().
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
  // Bytes of the pool's layer: K, then V.
  std::vector<unsigned char> pool_bytes() const;
  // Returns true if run() changed only the slots of the new tokens.
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
