#include "attend/kernels/attention/attention.h"

#include "attend/base/error.h"
#include "attend/kernels/attention/check_plan.h"
#include "attend/kernels/attention/cpu/attention.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/on_gpu.h"

namespace attend::kernels {
namespace {

bool has_descales(const AttentionArgs& args) {
  return args.q_scales.data != nullptr || args.k_scales.data != nullptr || args.v_scales.data != nullptr;
}

}  // namespace

void attention(const AttentionArgs& args, AttentionPlan& plan, Stream& stream) {
  check(args);
  check_plan(
      "attention", plan, args.batch, args.visibility,
      {.num_q_heads = args.q.shape[1], .num_kv_heads = args.kv.k.shape[2], .head_dim_v = args.kv.v.shape[3]});
  if (!args.new_keys.k.empty() && !stores_new_keys(args, plan))
    fail(ErrorCode::kUnsupported, "new_keys ", args.new_keys.k,
         ": expected none, but those that stores_new_keys() speaks of (attention)");
  if (has_descales(args) && args.q.dtype != DType::kF8E4M3 && !takes_descales(args, plan))
    fail(ErrorCode::kUnsupported, "q_scales, k_scales, v_scales with q ", args.q, " over k ", args.kv.k,
         ": expected none, but those that takes_descales() speaks of (attention)");
  if (const OnGpu gpu(stream); gpu) return cuda::attention(args, plan.device_plan(), stream);
  if (is_fp8(args.q.dtype))
    fail(ErrorCode::kUnsupported, "q ", args.q, ": on a CPU expected float32, float16 or bfloat16");
  cpu::attention(args, plan, cpu::attention_isa());
}

bool stores_new_keys(const AttentionArgs& args, const AttentionPlan& plan) {
  return args.q.device.type == DeviceType::kCuda && cuda::stores_new_keys(args, plan.device_plan());
}

bool takes_descales(const AttentionArgs& args, const AttentionPlan& plan) {
  return args.q.device.type == DeviceType::kCuda && cuda::takes_descales(args, plan.device_plan());
}

bool multiplies_e4m3(Device device, int64_t head_dim_qk, int64_t head_dim_v, int64_t num_rows) {
  return device.type == DeviceType::kCuda && cuda::multiplies_e4m3(device, head_dim_qk, head_dim_v, num_rows);
}

}  // namespace attend::kernels
