#include "attend/kernels/attention.h"

#include "attend/kernels/check_plan.h"
#include "attend/kernels/cpu/attention.h"

namespace attend::kernels {

void attention(const AttentionArgs& args, AttentionPlan& plan, Stream& stream) {
  check(args);
  check_plan(
      "attention", plan, args.batch, args.visibility,
      {.num_q_heads = args.q.shape[1], .num_kv_heads = args.kv.k.shape[2], .head_dim_v = args.kv.v.shape[3]});
  require_cpu("attention", stream);
  cpu::attention(args, plan, cpu::attention_isa());
}

}  // namespace attend::kernels
