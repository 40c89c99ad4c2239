// RecurrentBatch as kernel parameters.
#pragma once

#include <cstdint>

#include "attend/kernels/recurrent/recurrent.h"

namespace attend::kernels::cuda {

struct StepBatch {
  const int32_t *rows, *seqlen_kv, *cu_seqlen_q;  // [num_reqs], [num_reqs], [num_reqs + 1]
  const int32_t* load_slots;                      // [num_reqs]; null: each request reads its own slot
  const int32_t* save_slots;                      // [num_tokens]; null: none
  int32_t num_reqs, num_tokens;
};

inline StepBatch step_batch(const RecurrentBatch& batch, int64_t num_tokens) {
  return {.rows = batch.rows.data(),
          .seqlen_kv = batch.seqlen_kv.data(),
          .cu_seqlen_q = batch.cu_seqlen_q.data(),
          .load_slots = batch.load_slots.empty() ? nullptr : batch.load_slots.data(),
          .save_slots = batch.save_slots.empty() ? nullptr : batch.save_slots.data(),
          .num_reqs = static_cast<int32_t>(batch.num_reqs()),
          .num_tokens = static_cast<int32_t>(num_tokens)};
}

}  // namespace attend::kernels::cuda
