#include "tests/kernels/cuda/device_case.h"

#include "attend/base/error.h"

namespace attend::testing_cuda {
namespace {

// From `pointer`, which lies in `array`, to the array's end.
std::span<const int32_t> rest_of(const std::vector<int32_t>& array, const int32_t* pointer) {
  if (pointer == nullptr) return {};
  return {pointer, array.data() + array.size()};
}

}  // namespace

kernels::KvIndex upload(const kernels::KvIndex& index, const conformance::BuiltCase& built,
                        DeviceArrays& arrays) {
  kernels::KvIndex device = index;
  device.table = arrays.upload(rest_of(built.index.table, index.table));
  device.rows = arrays.upload(rest_of(built.index.rows, index.rows));
  device.indptr = arrays.upload(rest_of(built.index.indptr, index.indptr));
  device.slot_map = arrays.upload(rest_of(built.index.slot_map, index.slot_map));
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

void attention_on_gpu_if(const IsRightKernel& is_right, const kernels::AttentionArgs& args,
                         const conformance::BuiltCase& built) {
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
  kernels::AttentionPlan plan(plan_limits(built.spec), kGpu);
  plan.plan(device.batch, device.visibility, stream);
  ensure(is_right(device, plan.device_plan(), stream), "another kernel than the test's would run");
  kernels::attention(device, plan, stream);
  out.download(stream);
  lse.download(stream);
  cuda::synchronize(stream);
}

void attention_on_gpu(const kernels::AttentionArgs& args, const conformance::BuiltCase& built) {
  attention_on_gpu_if([](const auto&...) { return true; }, args, built);
}

void mla_on_gpu(const kernels::MlaArgs& args, const conformance::BuiltCase& built) {
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
  plan.plan(device.batch, device.visibility, stream);
  kernels::mla(device, plan, stream);
  out.download(stream);
  lse.download(stream);
  cuda::synchronize(stream);
}

}  // namespace attend::testing_cuda
