#include "attend/exec/replay_arrays.h"

#include <algorithm>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr size_t kRequestsPerPart = 2;

// Arrays in a block of int32 numbers.
struct Arrays {
  Arrays(int32_t* base, size_t num_reqs, size_t num_tokens)
      : rows{base, num_reqs},
        seqlen_kv{base + num_reqs, num_reqs},
        cu_seqlen_q{base + 2 * num_reqs, num_reqs + 1},
        save_slots{base + 3 * num_reqs + 1, num_tokens} {}

  static size_t num_bytes(size_t num_reqs, size_t num_tokens) {
    return (3 * num_reqs + 1 + num_tokens) * sizeof(int32_t);
  }

  View<int32_t> rows, seqlen_kv, cu_seqlen_q, save_slots;
};

}  // namespace

ReplayArrays::ReplayArrays(const BatchLimits& limits, Device device)
    : ring_(Arrays::num_bytes(kRequestsPerPart * static_cast<size_t>(limits.max_draft_reqs),
                              static_cast<size_t>(limits.max_verified_tokens())),
            device) {}

kernels::RecurrentBatch ReplayArrays::build(const VerifiedStates& verified, Stream& stream) {
  const size_t num_reqs = kRequestsPerPart * verified.parts.size(), num_tokens = verified.save_slots.size();
  const size_t num_bytes = Arrays::num_bytes(num_reqs, num_tokens);
  const View<std::byte> slot = ring_.next_slot();
  ensure(num_bytes <= slot.size(), "replay of ", verified.parts.size(), " requests and ", num_tokens,
         " tokens, more than the limits of a step");
  const Arrays host(reinterpret_cast<int32_t*>(slot.data()), num_reqs, num_tokens);
  int32_t end = 0;
  size_t r = 0;
  const auto add = [&](RequestRow row, int num_computed, int num_new) {
    host.rows[r] = row.value;
    host.seqlen_kv[r] = num_computed + num_new;
    host.cu_seqlen_q[r++] = end;
    end += num_new;
  };
  for (const VerifiedStates::Part& part : verified.parts) {
    add(part.row, part.num_computed, part.num_accepted);
    add(kPaddingRow, 0, part.num_rejected);
  }
  host.cu_seqlen_q[r] = end;
  ensure(end == verified.num_tokens(), "replay of ", end, " tokens with ", num_tokens, " snapshot slots");
  std::ranges::copy(verified.save_slots, host.save_slots.begin());
  ring_.upload(num_bytes, stream);
  const Arrays arrays(static_cast<int32_t*>(ring_.device_bytes().data), num_reqs, num_tokens);
  return {.rows = arrays.rows,
          .seqlen_kv = arrays.seqlen_kv,
          .cu_seqlen_q = arrays.cu_seqlen_q,
          .save_slots = arrays.save_slots};
}

}  // namespace attend
