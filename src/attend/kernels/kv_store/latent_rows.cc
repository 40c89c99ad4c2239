#include "attend/kernels/kv_store/latent_rows.h"

#include <algorithm>
#include <cstring>

#include "attend/base/error.h"
#include "attend/base/parallel.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/common/cpu/row_kernels.h"
#include "attend/kernels/common/on_gpu.h"
#include "attend/kernels/kv_store/cpu/store.h"
#include "attend/kernels/kv_store/cuda/store.h"
#include "attend/kernels/kv_store/selected_rows.h"

namespace attend::kernels {
namespace {

void check(const GatherLatentArgs& args, const Stream& stream) {
  require_rank("cache", args.cache, 3);
  require_rank("out", args.out, 2);
  const bool scaled = has_scaled_rows(args.cache);
  require_latent_cache("cache", args.cache, scaled ? kScaledRow.rank : args.cache.shape[2],
                       scaled ? kScaledRow.rope_dim : 0);
  require_activation("out", args.out);
  require_on(stream, "out", args.out);
  require_scale("scale", args.scale);
  require_shape("out", args.out, {args.out.shape[0], latent_width(args.cache)});
  require(args.out.is_contiguous(), "out ", args.out, ": expected a contiguous tensor");
  const auto num_reqs = args.requests.rows.size();
  require(args.requests.seqlen_kv.size() == num_reqs && args.cu_seqlen_q.size() == num_reqs + 1 &&
              args.cu_seqlen_kv.size() == num_reqs + 1 && args.seqlen_kv.size() == num_reqs,
          "gather_latent: for ", num_reqs, " requests ", args.requests.seqlen_kv.size(),
          " lengths, cu_seqlen_q of ", args.cu_seqlen_q.size(), ", cu_seqlen_kv of ",
          args.cu_seqlen_kv.size(), " and seqlen_kv of ", args.seqlen_kv.size());
  require(args.first >= 0 && args.count >= 1, "gather_latent: ", args.count, " keys from ", args.first,
          ": expected at least 1 key, from 0 or later");
  require(static_cast<int64_t>(num_reqs) * args.count <= args.out.shape[0], "out ", args.out, ": ", num_reqs,
          " requests need up to ", args.count, " rows each");
}

void gather_on_cpu(const GatherLatentArgs& args) {
  const auto num_reqs = static_cast<int32_t>(args.requests.rows.size());
  args.cu_seqlen_kv[0] = 0;
  for (int32_t r = 0; r < num_reqs; ++r) {
    const auto i = static_cast<size_t>(r);
    const int32_t prefix = args.requests.seqlen_kv[i] - (args.cu_seqlen_q[i + 1] - args.cu_seqlen_q[i]);
    args.seqlen_kv[i] = std::clamp(prefix - args.first, 0, args.count);
    args.cu_seqlen_kv[i + 1] = args.cu_seqlen_kv[i] + args.seqlen_kv[i];
  }
  const cpu::RowKernels kernels = cpu::row_kernels(cpu::detect_isa());
  const int64_t page_size = args.cache.shape[1];
  const auto element = static_cast<int64_t>(size_of(args.cache.dtype));
  parallel_for(num_reqs, [&](int64_t request, int) {
    const auto r = static_cast<size_t>(request);
    const int32_t* const slots =
        args.requests.table + args.requests.rows[r] * args.requests.stride + args.first;
    for (int32_t i = 0; i < args.seqlen_kv[r]; ++i) {
      int64_t slot = slots[i];
      if (args.requests.slot_map != nullptr) slot = args.requests.slot_map[slot];
      const int64_t row = slot / page_size * args.cache.strides[0] + slot % page_size * args.cache.strides[1];
      const std::byte* const from = static_cast<const std::byte*>(args.cache.data) + row * element;
      void* const to = args.out[args.cu_seqlen_kv[r] + i].data;
      if (has_scaled_rows(args.cache))
        cpu::read_scaled_row(kernels, from, args.scale, to, args.out.dtype);
      else  // store() divides by its scale.
        kernels.store(from, args.cache.dtype, to, args.out.dtype, 1.0f / args.scale,
                      static_cast<int>(args.cache.shape[2]));
    }
  });
}

}  // namespace

void gather_latent(const GatherLatentArgs& args, Stream& stream) {
  check(args, stream);
  if (args.requests.rows.empty()) return;
  if (const OnGpu gpu(stream); gpu) return cuda::gather_latent(args, stream);
  gather_on_cpu(args);
}

void cu_seqlens_to_lengths(View<const int32_t> sums, View<int32_t> lengths, Stream& stream) {
  require(sums.size() == lengths.size() + 1, "sums of ", sums.size(), ": ", lengths.size(),
          " lengths need one more");
  if (lengths.empty()) return;
  if (const OnGpu gpu(stream); gpu) return cuda::cu_seqlens_to_lengths(sums, lengths, stream);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = sums[i + 1] - sums[i];
}

void copy_to_heads(const TensorView& from, const TensorView& to, Stream& stream) {
  require_rank("from", from, 2);
  require_rank("to", to, 3);
  require_shape("to", to, {from.shape[0], to.shape[1], from.shape[1]});
  for (const auto& [name, view] : {std::pair{"from", &from}, {"to", &to}}) {
    require_activation(name, *view);
    require_on(stream, name, *view);
  }
  require_dtype("to", to, from.dtype);
  if (to.num_elements() == 0) return;
  if (const OnGpu gpu(stream); gpu) return cuda::copy_to_heads(from, to, stream);
  const size_t num_bytes = static_cast<size_t>(from.shape[1]) * size_of(from.dtype);
  parallel_for_rows(from.shape[0], to.shape[1] * to.shape[2], [&](int64_t token) {
    const TensorView heads = to[token];
    for (int64_t head = 0; head < heads.shape[0]; ++head)
      std::memcpy(heads[head].data, from[token].data, num_bytes);
  });
}

}  // namespace attend::kernels
