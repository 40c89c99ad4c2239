#include "attend/kernels/attention/mla.h"

#include "attend/kernels/attention/check_plan.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {

void mla(const MlaArgs& args, AttentionPlan& plan, Stream& stream) {
  check(args);
  check_plan("mla", plan, args.batch, args.visibility,
             {.num_q_heads = args.q.shape[1], .num_kv_heads = 1, .head_dim_v = args.q.shape[2]});
  if (const OnGpu gpu(stream); gpu) return cuda::mla(args, plan.device_plan(), stream);
  cpu::mla(args, plan, cpu::attention_isa());
}

}  // namespace attend::kernels
