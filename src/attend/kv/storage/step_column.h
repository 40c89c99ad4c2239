// StepColumn: array that a cache group adds to the step arrays of its executors.
#pragma once

#include <cstdint>

#include "attend/base/ids.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Arrays of a step on the host, padding included.
struct HostStep {
  View<const RequestRow> request_rows;  // [num_reqs]; padding: kPaddingRow
  View<const int32_t> seqlen_kv;        // [num_reqs], with the step's new tokens
  View<const int32_t> cu_seqlen_q;      // [num_reqs + 1]
  View<const TokenSlot> out_slots;      // [num_tokens]; kNoSlot: not stored
  View<const int32_t> num_drafts = {};  // [num_reqs] drafts among the new tokens; empty: none
};

// Returns whether the step verifies drafts of request r.
inline bool verifies(const HostStep& step, size_t r) {
  return !step.num_drafts.empty() && step.num_drafts[r] > 0;
}

// int32 array with one entry per request or new token of a step. It is uploaded with the step's other arrays,
// to the same address in all steps of one padded size, as graphs require.
class StepColumn {
 public:
  enum class Length : uint8_t { kRequests, kTokens };

  explicit StepColumn(Length length) : length_(length) {}
  virtual ~StepColumn() = default;
  StepColumn(const StepColumn&) = delete;
  StepColumn& operator=(const StepColumn&) = delete;

  // Writes all entries of a step, including padding. Allocates nothing.
  virtual void fill(const HostStep& step, View<int32_t> entries) const = 0;

  // Entries of the current step on the device.
  View<const int32_t> entries() const { return entries_; }

  Length length() const { return length_; }
  void set_entries(View<const int32_t> entries) { entries_ = entries; }

 private:
  Length length_;
  View<const int32_t> entries_;
};

}  // namespace attend
