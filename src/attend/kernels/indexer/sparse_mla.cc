#include "attend/kernels/indexer/sparse_mla.h"

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"
#include "attend/kernels/indexer/cpu/select_keys.h"

namespace attend::kernels {
namespace {

void check(const SelectKeysArgs& args, const SparseMlaPlan& plan) {
  require_rank("index q", args.q, 3);
  require_rank("index k", args.k, 3);
  const int64_t num_tokens = plan.num_tokens(), num_heads = args.q.shape[1], head_dim = args.q.shape[2];
  require_shape("index q", args.q, {num_tokens, num_heads, head_dim});
  require_shape("index weights", args.weights, {num_tokens, num_heads});
  require_shape("index k", args.k, {args.k.shape[0], args.index.page_size, head_dim});
  require_dtype("index q", args.q, DType::kF32);
  require_dtype("index weights", args.weights, DType::kF32);
  require_activation("index k", args.k);
  require_unit_stride("index q", args.q);
  require_unit_stride("index weights", args.weights);
  require_unit_stride("index k", args.k);
  if (head_dim > kMaxIndexDim)
    fail(ErrorCode::kUnsupported, "index q ", args.q, ": attend supports head dims up to ", kMaxIndexDim);
  require(args.batch.cu_seqlen_q.size() == args.batch.seqlen_kv.size() + 1 &&
              args.batch.cu_seqlen_q.back() <= num_tokens,
          "select_keys: ", args.batch.seqlen_kv.size(), " requests with ", args.batch.cu_seqlen_q.size(),
          " sums of tokens: expected one more than requests, up to ", num_tokens);
}

}  // namespace

void select_keys(const SelectKeysArgs& args, SparseMlaPlan& plan, Stream&) {
  check(args, plan);
  cpu::select_keys(args, plan.scores(), plan.keys(), cpu::detect_isa());
}

void sparse_mla(const SparseMlaArgs& args, SparseMlaPlan& plan, Stream& stream) {
  require_rank("latent", args.latent, 3);
  mla({.q = args.q,
       .q_rope = args.q_rope,
       .out = args.out,
       .lse = args.lse,
       .latent = args.latent.reshape({args.latent.shape[0] * args.latent.shape[1], 1, args.latent.shape[2]}),
       .index = plan.index(),
       .scale_kv = args.scale_kv,
       .batch = plan.queries(),
       .attention_mask = {},
       .score = args.score},
      plan.attention(), stream);
}

}  // namespace attend::kernels
