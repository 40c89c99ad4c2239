#include "attend/model/modules/mla/expand_mla.h"

#include <algorithm>

#include "attend/kernels/attention/attention.h"
#include "attend/kernels/gemm/linear.h"
#include "attend/kernels/kv_store/latent_rows.h"
#include "attend/model/modules/mla/mla_path.h"

namespace attend {
namespace {

// Expanded keys and values of up to max_tokens latent rows, and the lengths of their requests.
class ExpandedKeys {
 public:
  ExpandedKeys(ModuleStep& step, const ExpandedMla& args)
      : step_(step),
        args_(args),
        keys_(heads(args.spec.nope_dim + args.spec.rope_dim)),
        values_(heads(args.spec.v_dim)) {
    const View<int32_t> numbers = step.scratch.take_wide(DType::kI32, 3).span<int32_t>();
    const auto num_reqs = static_cast<size_t>(step.batch.num_reqs);
    lengths_ = numbers.first(num_reqs);
    sums_ = numbers.subspan(num_reqs, num_reqs + 1);
  }

  View<int32_t> lengths() const { return lengths_; }
  View<int32_t> sums() const { return sums_; }

  // Computes keys and values of these latent rows.
  void expand(const TensorView& rows) {
    const int64_t rank = args_.spec.kv_lora_rank, nope = args_.spec.nope_dim;
    num_keys_ = rows.shape[0];
    // Stride 0: all heads read the same row.
    TensorView latents = rows.slice(1, 0, rank).split(1, rank);
    latents.shape[1] = args_.spec.num_heads;
    latents.strides[1] = 0;
    multiply(latents, args_.key_weight, keys().slice(2, 0, nope));
    multiply(latents, args_.value_weight, values());
    kernels::copy_to_heads(rows.slice(1, rank, rows.shape[1]), keys().slice(2, nope, keys_.shape[2]),
                           step_.context.stream);
  }

  // `sums`: prefix sums of the lengths.
  void attend(View<const int32_t> sums, bool causal, const TensorView& out, const TensorView& lse) const {
    step_.attention.forward(args_.layer,
                            {.q = args_.q,
                             .out = out,
                             .lse = lse,
                             .k = keys(),
                             .v = values(),
                             .cu_seqlen_kv = sums,
                             .seqlen_kv_expanded = lengths_,
                             .causal = causal},
                            step_.batch, step_.context.stream);
  }

 private:
  TensorView heads(int64_t dim) {
    return step_.scratch.take_all_rows(args_.spec.num_heads * dim).split(1, dim);
  }
  TensorView keys() const { return keys_.slice(0, 0, num_keys_); }
  TensorView values() const { return values_.slice(0, 0, num_keys_); }
  void multiply(const TensorView& x, const TensorView& weight, const TensorView& out) const {
    kernels::head_linear({.x = x, .weight = weight, .out = out, .workspace = step_.context.workspace},
                         step_.context.stream);
  }

  ModuleStep& step_;
  const ExpandedMla& args_;
  TensorView keys_, values_;  // [max_tokens, num_heads, dim]
  View<int32_t> lengths_, sums_;
  int64_t num_keys_ = 0;
};

}  // namespace

std::vector<int64_t> expanded_scratch_widths(const MlaSpec& spec) {
  const int64_t heads = spec.num_heads, out = heads * spec.v_dim;
  // Numbers of 4 bytes count as two features, since features may have 16 bits.
  return {heads * (spec.nope_dim + spec.rope_dim), out, 2 * 3,    2 * heads,
          spec.kv_lora_rank + spec.rope_dim,       out, 2 * heads};
}

void attend_expanded(ModuleStep& step, const ExpandedMla& args) {
  const ForwardBatch& batch = step.batch;
  const PrefixInfo& prefix = *batch.prefix;
  Stream& stream = step.context.stream;
  ExpandedKeys keys(step, args);
  const TensorView lse = step.scratch.take_wide(DType::kF32, args.spec.num_heads);
  keys.expand(args.rows);
  kernels::cu_seqlens_to_lengths(batch.cu_seqlen_q, keys.lengths(), stream);
  keys.attend(batch.cu_seqlen_q, /*causal=*/true, args.out, lse);

  const auto [keys_per_request, num_chunks] = prefix_chunks(batch, step.scratch.max_tokens());
  if (num_chunks == 0) return;
  const TensorView gathered = step.scratch.take_all_rows(args.rows.shape[1]);
  const TensorView chunk_out =
      step.scratch.take(int64_t{args.spec.num_heads} * args.spec.v_dim).split(1, args.spec.v_dim);
  const TensorView chunk_lse = step.scratch.take_wide(DType::kF32, args.spec.num_heads);
  const int64_t num_rows = int64_t{batch.num_reqs} * keys_per_request;
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    kernels::gather_latent({.cache = args.cache.k,
                            .scale = args.cache.k_scale,
                            .requests = {.table = prefix.table,
                                         .stride = prefix.table_stride,
                                         .rows = raw(batch.request_rows),
                                         .seqlen_kv = batch.seqlen_kv,
                                         .slot_map = args.cache.slot_map},
                            .cu_seqlen_q = batch.cu_seqlen_q,
                            .first = chunk * keys_per_request,
                            .count = keys_per_request,
                            .out = gathered,
                            .cu_seqlen_kv = keys.sums(),
                            .seqlen_kv = keys.lengths()},
                           stream);
    keys.expand(gathered.slice(0, 0, num_rows));
    keys.attend(keys.sums(), /*causal=*/false, chunk_out, chunk_lse);
    kernels::merge({.out_a = args.out,
                    .out_b = chunk_out,
                    .lse_a = lse,
                    .lse_b = chunk_lse,
                    .out = args.out,
                    .lse = lse},
                   stream);
  }
}

}  // namespace attend
