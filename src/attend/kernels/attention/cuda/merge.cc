#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/attention/cuda/common/merge_kernel.h"
#include "attend/kernels/common/cuda/view_params.h"

namespace attend::kernels::cuda {
namespace {

void set_results(const TensorView& out, const TensorView& lse, MergeParams& params) {
  params.out = out_rows(out);
  params.out_element = to_element_type(out.dtype);
  if (!lse.empty()) {
    params.lse = lse.as<float>();
    params.lse_token_stride = lse.strides[0];
    params.lse_head_stride = lse.strides[1];
  }
  params.num_tokens = static_cast<int32_t>(out.shape[0]);
  params.num_heads = static_cast<int32_t>(out.shape[1]);
  params.head_dim = static_cast<int32_t>(out.shape[2]);
}

MergePartial partial(const TensorView& out, const TensorView& lse) {
  return {token_rows(out), to_element_type(out.dtype), lse.as<float>(), lse.strides[0], lse.strides[1]};
}

}  // namespace

void merge(const MergeArgs& args, Stream& stream) {
  MergeParams params{};
  params.partials[0] = partial(args.out_a, args.lse_a);
  params.partials[1] = partial(args.out_b, args.lse_b);
  params.num_partials = 2;
  set_results(args.out, args.lse, params);
  launch_merge(params, stream.handle);
}

void merge_splits(const MergeSplitsArgs& args, Stream& stream) {
  MergeParams params{};
  params.partials[0] = partial(args.partial_out[0], args.partial_lse[0]);
  params.num_partials = static_cast<int32_t>(args.partial_out.shape[0]);
  params.strided = true;
  params.out_partial_stride = args.partial_out.strides[0];
  params.lse_partial_stride = args.partial_lse.strides[0];
  params.sinks = args.sinks.empty() ? nullptr : args.sinks.data();
  set_results(args.out, args.lse, params);
  launch_merge(params, stream.handle);
}

}  // namespace attend::kernels::cuda
