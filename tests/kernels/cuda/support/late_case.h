// Conformance cases with q and new keys that are written only at the end of the kernel before attention.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tests/kernels/conformance/cases/built_case.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/late_rows.h"

namespace attend::testing_cuda {

// Tensor with some rows that are NaN until the late kernel has written them.
class LateTensor {
 public:
  // `rows` are addresses in `host` of rows of `row_bytes` bytes.
  LateTensor(const TensorView& host, const std::vector<const std::byte*>& rows, int64_t row_bytes,
             Stream& stream);
  const TensorView& view() const { return present_.view(); }
  const std::vector<LateRow>& rows() const { return rows_; }
  void reset(Stream& stream) const;

 private:
  Tensor poisoned_host_;
  DeviceCopy whole_, poisoned_, present_;
  std::vector<LateRow> rows_;
};

// One case of attention or MLA on the GPU.
class LateCase {
 public:
  LateCase(const kernels::AttentionArgs& args, const conformance::BuiltCase& built, Stream& stream);
  LateCase(const kernels::MlaArgs& args, const conformance::BuiltCase& built, Stream& stream);
  // Queues the poisoning of q, new keys and results, the plan, the late kernel, and attention.
  void queue(bool prefix_ready);
  // Copies the results to args.out and args.lse.
  void download();

 private:
  template <class Args>
  LateCase(const Args& args, const conformance::BuiltCase& built, Stream& stream, int);
  template <class Args>
  Args on_device(const Args& args);
  TensorView late(const TensorView& host, const std::vector<const std::byte*>& rows);
  void gather_rows();

  Stream& stream_;
  DeviceArrays arrays_;
  DeviceCopy out_, lse_, empty_out_, empty_lse_;
  kernels::AttentionPlan plan_;
  kernels::QueryBatch batch_;
  kernels::AttentionMask attention_mask_;
  std::vector<std::unique_ptr<LateTensor>> tensors_;
  std::span<const LateRow> rows_;
  std::function<void(bool prefix_ready)> attend_;
};

// AttentionFn of the conformance suite: runs attention with and without prefix_ready. Throws if the bits
// differ.
void attention_after_late_keys(const kernels::AttentionArgs& args, const conformance::BuiltCase& built);
// MlaFn of the conformance suite, with the same check.
void mla_after_late_keys(const kernels::MlaArgs& args, const conformance::BuiltCase& built);

}  // namespace attend::testing_cuda
