// The tile shapes of prefill on sm_90a, and where things lie in shared memory.
#pragma once

#include "attend/kernels/attention/cuda/sm90/prefill_kernel.h"

namespace attend::kernels::cuda::sm90 {

// A tile of rows of 16-bit elements lies in chunks of 64 columns, one after another; the rows of a chunk, 128
// bytes each, are swizzled as the copy engine does in its 128-byte mode.
inline constexpr int kChunkColumns = 64, kChunkRowBytes = 128;
inline constexpr int kSwizzleAtom = 1024;  // eight such rows: what tiles are aligned to

// A CTA multiplies 128 rows, 64 in each of two warpgroups, with kKeys keys at a time. Another warpgroup
// brings keys, values and queries; two of them where keys and values are converted from 8 bits.
template <int kHeadDimQk, int kHeadDimV, bool kConverts>
struct PrefillTile {
  static constexpr int kRows = kPrefillRows;
  static constexpr int kKeys = prefill_keys(kHeadDimQk);
  static constexpr int kMostBoxRows = most_box_rows(kHeadDimQk);
  static constexpr int kStages = 2;  // of keys, and of values
  // One job is computed, the keys and queries of the next come in. What is taken earlier is taken from CTAs
  // that end before.
  static constexpr int kJobSlots = 2;
  // Queries are wanted until the last scores. Where two do not fit, those of the next job come in while the
  // results of the present one become ready.
  static constexpr int kQuerySlots = kHeadDimQk > 192 || kConverts ? 1 : 2;
  static constexpr int kQkChunks = kHeadDimQk / kChunkColumns, kVChunks = kHeadDimV / kChunkColumns;

  static constexpr int kQueryChunkBytes = kRows * kChunkRowBytes;
  static constexpr int kKeyChunkBytes = kKeys * kChunkRowBytes;
  static constexpr int kQueryBytes = kQkChunks * kQueryChunkBytes;
  static constexpr int kKeyBytes = kQkChunks * kKeyChunkBytes;
  static constexpr int kValueBytes = kVChunks * kKeyChunkBytes;
  // Of 8 bits: one is converted, the next comes in.
  static constexpr int kCopiedStages = kConverts ? 2 : 0;
  static constexpr int kCopiedKeyBytes = kKeyBytes / 2, kCopiedValueBytes = kValueBytes / 2;

  // Warps by what they do. Each warpgroup has a warp that brings its queries.
  static constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;
  static constexpr int kConsumerRows = kRows / kConsumers;
  static constexpr int kRingWarps = kConverts ? 2 : 1;  // of keys, and of values
  static constexpr int kCopyWarps = 2 * kRingWarps;
  static constexpr int kBringingWarps = (kCopyWarps + kConsumers + 3) / 4 * 4;  // whole warpgroups
  static constexpr int kThreads = 32 * (kBringingWarps + kConsumerWarps);

  // A CTA's registers are those that it is launched with, whole eights a thread: of 64 K some may stay
  // unused, and a warpgroup that asked for them would wait for ever.
  static constexpr int kBringingRegisters = kConverts ? 56 : 72, kConsumerRegisters = kConverts ? 200 : 216;
  static_assert(32 * (kBringingWarps * kBringingRegisters + kConsumerWarps * kConsumerRegisters) <=
                65536 / kThreads / 8 * 8 * kThreads);
  static_assert(kHeadDimV <= kHeadDimQk && kKeys % kMostBoxRows == 0);
};

}  // namespace attend::kernels::cuda::sm90
