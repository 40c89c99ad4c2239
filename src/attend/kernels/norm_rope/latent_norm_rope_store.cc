#include <algorithm>
#include <array>

#include "attend/base/parallel.h"
#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cpu/store.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/check_rows.h"
#include "attend/kernels/norm_rope/cpu/elementwise.h"
#include "attend/kernels/norm_rope/cuda/elementwise.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"

namespace attend::kernels {
namespace {

struct LatentRow {
  TensorView latent, rope;

  explicit LatentRow(const LatentNormRopeStoreArgs& args) {
    const int64_t rank = args.norm.shape[0];
    latent = args.kv_a.slice(1, 0, rank);
    rope = args.kv_a.slice(1, rank, args.kv_a.shape[1]);
  }
};

NormRopeArgs rotation(const LatentNormRopeStoreArgs& args, const TensorView& k_rope) {
  return {.q = args.q_rope,
          .k = k_rope.split(1, k_rope.shape[1]),
          .positions = args.positions,
          .cos = args.cos,
          .sin = args.sin,
          .interleaved = args.interleaved};
}

// Reads stored rows back from the cache.
void read_back(const LatentNormRopeStoreArgs& args) {
  const TensorView& cache = args.to.k;
  if (cache.dtype == args.kv_a.dtype && args.to.k_scale == 1.0f) return;
  const cpu::RowKernels kernels = cpu::row_kernels(cpu::detect_isa());
  const int64_t page_size = cache.shape[1];
  parallel_for_rows(args.kv_a.shape[0], cache.shape[2], [&](int64_t token) {
    int32_t slot = args.to.slots[static_cast<size_t>(token)];
    if (slot >= 0 && args.to.slot_map != nullptr) slot = args.to.slot_map[slot];
    if (slot < 0) return;
    const TensorView row = cache[slot / page_size][slot % page_size], to = args.kv_a[token];
    if (has_scaled_rows(cache))
      cpu::read_scaled_row(kernels, static_cast<const std::byte*>(row.data), args.to.k_scale, to.data,
                           to.dtype);
    else  // store() divides by its scale.
      kernels.store(row.data, cache.dtype, to.data, to.dtype, 1.0f / args.to.k_scale,
                    static_cast<int>(cache.shape[2]));
  });
}

// q: [num_tokens, num_heads, dim], in place.
void round_to_e4m3(const TensorView& q) {
  const cpu::RowKernels kernels = cpu::row_kernels(cpu::detect_isa());
  parallel_for_rows(q.shape[0], q.shape[1] * q.shape[2], [&](int64_t token) {
    std::array<F8E4M3, 64> rounded;
    for (int64_t head = 0; head < q.shape[1]; ++head)
      for (int64_t first = 0; first < q.shape[2]; first += std::ssize(rounded)) {
        const TensorView part =
            q[token][head].slice(0, first, std::min(q.shape[2], first + std::ssize(rounded)));
        const auto count = static_cast<int>(part.shape[0]);
        kernels.store(part.data, part.dtype, rounded.data(), DType::kF8E4M3, 1.0f, count);
        kernels.store(rounded.data(), DType::kF8E4M3, part.data, part.dtype, 1.0f, count);
      }
  });
}

}  // namespace

void check(const LatentNormRopeStoreArgs& args, const Stream& stream) {
  require_rank("kv_a", args.kv_a, 2);
  require_rank("q_rope", args.q_rope, 3);
  require_rank("norm", args.norm, 1);
  require_activation_on(stream, "kv_a", args.kv_a);
  require_norm_weight(args.norm, args.norm.shape[0], stream);
  const int64_t rope_dim = args.q_rope.shape[2];
  require_shape("kv_a", args.kv_a, {args.q_rope.shape[0], args.norm.shape[0] + rope_dim});
  require_dtype("q_rope", args.q_rope, args.kv_a.dtype);
  if (!args.cos.empty()) {
    require_rank("cos", args.cos, 2);
    require_shape("cos", args.cos, {args.cos.shape[0], rope_dim / 2});
  }
  const LatentRow row(args);
  check(rotation(args, row.rope), stream);
  check(StoreMlaArgs{.latent = row.latent, .rope = row.rope, .to = args.to});
  if (args.q_latent.empty()) return;
  require_shape("q_latent", args.q_latent,
                {args.q_rope.shape[0], args.q_rope.shape[1], args.q_latent.shape[2]});
  require_dtype("q_latent", args.q_latent, args.q_rope.dtype);
  require_unit_stride("q_latent", args.q_latent);
  require_on(stream, "q_latent", args.q_latent);
}

void latent_norm_rope_store(const LatentNormRopeStoreArgs& args, Stream& stream) {
  check(args, stream);
  if (const OnGpu gpu(stream); gpu) return cuda::latent_norm_rope_store(args, stream);
  const LatentRow row(args);
  const cpu::Isa isa = cpu::detect_isa();
  cpu::rms_norm(row.latent, args.norm, args.eps, row.latent, 0.0f, isa);
  const NormRopeArgs rotated = rotation(args, row.rope);
  for (const TensorView* heads : {&rotated.q, &rotated.k})
    if (!args.cos.empty())
      cpu::rope(*heads, rotated.positions, rotated.cos, rotated.sin, rotated.interleaved, isa);
  cpu::store_mla({.latent = row.latent, .rope = row.rope, .to = args.to}, isa);
  read_back(args);
  if (args.q_latent.empty()) return;
  round_to_e4m3(args.q_latent);
  round_to_e4m3(args.q_rope);
}

}  // namespace attend::kernels
