#include "tests/kernels/cuda/support/device_case.h"

#include "attend/base/error.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/plan.h"

namespace attend::testing_cuda {
namespace {

// Elements from `pointer`, which points into `array`, to the array's end.
std::span<const int32_t> tail_from(const std::vector<int32_t>& array, const int32_t* pointer) {
  if (pointer == nullptr) return {};
  return {pointer, array.data() + array.size()};
}

}  // namespace

kernels::KvIndex upload(const kernels::KvIndex& index, const conformance::BuiltCase& built,
                        DeviceArrays& arrays) {
  kernels::KvIndex device = index;
  device.table = arrays.upload(tail_from(built.index.table, index.table));
  device.rows = arrays.upload(tail_from(built.index.rows, index.rows));
  device.indptr = arrays.upload(tail_from(built.index.indptr, index.indptr));
  device.slot_map = arrays.upload(tail_from(built.index.slot_map, index.slot_map));
  return device;
}

kernels::QueryBatch upload(const kernels::QueryBatch& batch, DeviceArrays& arrays) {
  kernels::QueryBatch device = batch;
  device.cu_seqlen_q = arrays.view(batch.cu_seqlen_q);
  device.seqlen_kv = arrays.view(batch.seqlen_kv);
  device.tree_mask = arrays.view(batch.tree_mask);
  device.positions = arrays.view(batch.positions);
  return device;
}

namespace {

void make_plan(kernels::AttentionPlan& plan, Planning planning, const kernels::QueryBatch& batch,
               const kernels::AttentionMask& attention_mask, Stream& stream) {
  if (planning == Planning::kBefore) return plan.plan(batch, attention_mask, stream);
  plan.plan_inline(batch, attention_mask, stream);
  ensure(plan.device_plan().view().inline_plan, "the call would not derive its plan");
}

void run_mla(const kernels::MlaArgs& args, const conformance::BuiltCase& built, Planning planning) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const DeviceCopy q(args.q, stream), q_rope(args.q_rope, stream), out(args.out, stream),
      lse(args.lse, stream), latent(args.latent, stream);
  kernels::MlaArgs device = args;
  device.q = q.view();
  device.q_rope = q_rope.view();
  device.out = out.view();
  device.lse = lse.view();
  device.latent = latent.view();
  device.index = upload(args.index, built, arrays);
  device.batch = upload(args.batch, arrays);
  device.score.sinks = arrays.view(args.score.sinks);
  kernels::AttentionPlan plan(plan_limits(built.spec), kGpu);
  make_plan(plan, planning, device.batch, device.attention_mask, stream);
  kernels::mla(device, plan, stream);
  out.download(stream);
  lse.download(stream);
  cuda::synchronize(stream);
}

// The inline plan runs first, so that results that it does not write are still poisoned.
template <class Run>
void run_with_both_plans(const conformance::BuiltCase& built, const Run& run) {
  run(Planning::kInline);
  const auto planned_inline = built.result_bytes();
  run(Planning::kBefore);
  ensure(built.result_bytes() == planned_inline, "other bits with a plan made before");
}

}  // namespace

void attention_on_gpu_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                         const conformance::BuiltCase& built, Planning planning, const RunAttention& run) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  DeviceArrays arrays(stream);
  const DeviceCopy q(args.q, stream), out(args.out, stream), lse(args.lse, stream);
  const DeviceCopy k(args.kv.k, stream), v(args.kv.v, stream);
  kernels::AttentionArgs device = args;
  device.q = q.view();
  device.out = out.view();
  device.lse = lse.view();
  device.kv.k = k.view();
  device.kv.v = v.view();
  device.kv.index = upload(args.kv.index, built, arrays);
  device.batch = upload(args.batch, arrays);
  device.score.sinks = arrays.view(args.score.sinks);
  const auto count = static_cast<size_t>(args.batch.num_reqs() * args.kv.k.shape[2]);
  for (kernels::HeadScales* scales : {&device.q_scales, &device.k_scales, &device.v_scales})
    if (scales->data != nullptr) scales->data = arrays.upload(std::span(scales->data, count));
  kernels::AttentionPlan plan(plan_limits(built.spec), kGpu);
  make_plan(plan, planning, device.batch, device.attention_mask, stream);
  ensure(is_right(device, plan.device_plan()), "another kernel than the test's would run");
  run(device, plan, stream);
  out.download(stream);
  lse.download(stream);
  cuda::synchronize(stream);
}

void attention_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_on_gpu_if([](const auto&...) { return true; }, args, built);
}

// CTAs that do not wait run first, so that results that they do not write are still poisoned.
void attention_without_waiting_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                  const conformance::BuiltCase& built) {
  // The last of three launches is compared; it starts with the counters that the earlier ones left.
  const auto run_repeatedly = [&](const kernels::AttentionArgs& on_device,
                                  const kernels::cuda::DevicePlan& plan, Stream& stream) {
    const DeviceCopy out(args.out, stream), lse(args.lse, stream);
    kernels::AttentionArgs elsewhere = on_device;
    elsewhere.out = out.view();
    elsewhere.lse = lse.view();
    for (int i = 0; i < 2; ++i) kernels::cuda::attention(elsewhere, plan, stream);
    kernels::cuda::attention(on_device, plan, stream);
    cuda::synchronize(stream);
  };
  attention_on_gpu_if(
      is_right, args, built, Planning::kBefore,
      [&](const kernels::AttentionArgs& on_device, const kernels::AttentionPlan& plan, Stream& stream) {
        kernels::cuda::DevicePlan without_waits = kernels::cuda::make_plan(plan.limits(), kGpu);
        without_waits.set_barrier_timeout_clocks(0);
        kernels::cuda::plan(without_waits, on_device.batch, on_device.attention_mask, stream);
        run_repeatedly(on_device, without_waits, stream);
      });
  const auto without_waiting = built.result_bytes();
  attention_on_gpu_if(is_right, args, built, Planning::kBefore,
                      [&](const kernels::AttentionArgs& on_device, const kernels::AttentionPlan& plan,
                          Stream& stream) { run_repeatedly(on_device, plan.device_plan(), stream); });
  ensure(built.result_bytes() == without_waiting, "other bits where CTAs do not wait");
}

void mla_on_gpu(const kernels::MlaArgs& args, const conformance::BuiltCase& built) {
  run_mla(args, built, Planning::kBefore);
}

void attention_planned_inline(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_planned_inline_if([](const auto&...) { return true; }, args, built);
}
void attention_planned_inline_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                                 const conformance::BuiltCase& built) {
  run_with_both_plans(built,
                      [&](Planning planning) { attention_on_gpu_if(is_right, args, built, planning); });
}

void mla_planned_inline(const kernels::MlaArgs& args, const conformance::BuiltCase& built) {
  run_with_both_plans(built, [&](Planning planning) { run_mla(args, built, planning); });
}

}  // namespace attend::testing_cuda
