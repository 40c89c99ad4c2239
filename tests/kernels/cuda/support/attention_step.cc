#include "tests/kernels/cuda/support/attention_step.h"

#include "attend/base/math.h"
#include "attend/kernels/attention/cuda/attention.h"
#include "attend/kernels/common/cuda/gpu_facts.h"
#include "attend/kernels/common/fill_random.h"

namespace attend::testing_cuda {
namespace {

constexpr int kPageSize = 16, kLatentColumns = 512, kRopeColumns = 64;

TensorView host_view(std::vector<int32_t>& numbers) {
  return TensorView::contiguous(numbers.data(), DType::kI32, {static_cast<int64_t>(numbers.size())});
}

// View with the shape and strides of `device`, in host memory.
TensorView host_view(const Tensor& device, void* data) {
  TensorView host = device;
  host.data = data;
  host.device = {};
  return host;
}

kernels::AttentionPlanLimits make_limits(const StepShape& shape) {
  return {.max_reqs = shape.num_reqs,
          .max_tokens = shape.num_reqs * shape.max_seqlen_q,
          .max_kv_tokens =
              shape.max_kv_tokens > 0 ? shape.max_kv_tokens : int64_t{shape.num_reqs} * shape.max_seqlen_kv,
          .num_q_heads = shape.num_q_heads,
          .num_kv_heads = shape.mla ? 1 : shape.num_kv_heads,
          .head_dim_v = shape.mla ? kLatentColumns : shape.head_dim,
          .split_rule = shape.split_rule,
          .kv_dtype = shape.kv_dtype};
}

}  // namespace

AttentionStep::AttentionStep(const StepShape& shape, Stream& stream)
    : shape_(shape), stream_(stream), plan_(make_limits(shape), kGpu) {
  const int64_t num_tokens = int64_t{shape.num_reqs} * shape.max_seqlen_q, num_q_heads = shape.num_q_heads;
  const int64_t pages_of_request = ceil_div<int64_t>(shape.max_seqlen_kv, kPageSize);
  const int64_t num_pages = shape.num_reqs * pages_of_request;
  std::vector<int32_t> table;
  for (int64_t page = num_pages; page > 0; --page) table.push_back(static_cast<int32_t>(page - 1));
  table_ = cuda::copy_to(host_view(table), kGpu);
  lengths_ = cuda::zeros({2 * shape.num_reqs + 1}, DType::kI32, kGpu);
  const kernels::KvIndex index{.kind = kernels::KvIndexKind::kPageTable,
                               .page_size = kPageSize,
                               .table = table_.as<int32_t>(),
                               .table_stride = pages_of_request};
  const auto num_reqs = static_cast<size_t>(shape.num_reqs);
  kernels::QueryBatch batch;
  batch.cu_seqlen_q = {lengths_.as<int32_t>(), num_reqs + 1};
  batch.seqlen_kv = {lengths_.as<int32_t>() + num_reqs + 1, num_reqs};
  batch.max_seqlen_q = shape.max_seqlen_q;
  batch.max_seqlen_kv = shape.short_requests ? kernels::kShortRequestMaxKeys : shape.max_seqlen_kv;
  const int64_t head_dim_v = shape.mla ? kLatentColumns : shape.head_dim;
  q_ = random({num_tokens, num_q_heads, head_dim_v});
  out_ = cuda::zeros({num_tokens, num_q_heads, head_dim_v}, DType::kBF16, kGpu);
  if (shape.mla) {
    q_rope_ = random({num_tokens, num_q_heads, kRopeColumns});
    k_ = random({num_pages, kPageSize, kLatentColumns + kRopeColumns}, shape.kv_dtype);
    mla_args_.q = q_;
    mla_args_.q_rope = q_rope_;
    mla_args_.out = out_;
    mla_args_.latent = k_;
    mla_args_.index = index;
    mla_args_.batch = batch;
    mla_args_.attention_mask = shape.attention_mask;
    mla_args_.score.scale = 0.04f;
  } else {
    k_ = random({num_pages, kPageSize, shape.num_kv_heads, shape.head_dim}, shape.kv_dtype);
    v_ = random({num_pages, kPageSize, shape.num_kv_heads, shape.head_dim}, shape.kv_dtype);
    args_.q = q_;
    args_.out = out_;
    args_.kv.k = k_;
    args_.kv.v = v_;
    args_.kv.index = index;
    args_.batch = batch;
    args_.attention_mask = shape.attention_mask;
    args_.score.scale = 0.09f;
  }
}

void AttentionStep::set_lengths(std::span<const conformance::Lengths> lengths) {
  std::vector<int32_t> numbers{0};
  for (const conformance::Lengths& request : lengths) numbers.push_back(numbers.back() + request.seqlen_q);
  for (const conformance::Lengths& request : lengths) numbers.push_back(request.seqlen_kv);
  cuda::copy(host_view(numbers), lengths_, stream_);
  cuda::synchronize(stream_);
}

void AttentionStep::queue(Planning planning) {
  const kernels::QueryBatch& batch = shape_.mla ? mla_args_.batch : args_.batch;
  if (planning == Planning::kBefore)
    plan_.plan(batch, shape_.attention_mask, stream_);
  else
    plan_.plan_inline(batch, shape_.attention_mask, stream_);
  if (shape_.mla)
    kernels::mla(mla_args_, plan_, stream_);
  else
    kernels::attention(args_, plan_, stream_);
}

kernels::cuda::AttentionKernel AttentionStep::kernel() const {
  const kernels::cuda::AttentionProblem problem =
      shape_.mla ? attention_problem(mla_args_, plan()) : attention_problem(args_, plan());
  return choose(problem, kernels::cuda::gpu_facts(kGpu)).row.kernel;
}

void AttentionStep::poison_result() {
  std::vector<uint8_t> nan(out_.view().num_bytes(), 0xff);
  cuda::copy(host_view(out_, nan.data()), out_, stream_);
  cuda::synchronize(stream_);
}

std::vector<uint8_t> AttentionStep::result() {
  std::vector<uint8_t> bytes(out_.view().num_bytes());
  cuda::copy(out_, host_view(out_, bytes.data()), stream_);
  cuda::synchronize(stream_);
  return bytes;
}

// fp8 values below 2.
Tensor AttentionStep::random(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor device = cuda::empty(shape, dtype, kGpu);
  if (!is_fp8(dtype)) {
    kernels::fill_random(device, {.deviation = 1.0f}, stream_);
    return device;
  }
  std::vector<uint8_t> codes(device.view().num_bytes());
  uint32_t state = 12345;
  for (uint8_t& code : codes) {
    state = state * 1664525u + 1013904223u;
    code = static_cast<uint8_t>(state >> 24 & 0xbf);
  }
  cuda::copy(host_view(device, codes.data()), device, stream_);
  cuda::synchronize(stream_);
  return device;
}

}  // namespace attend::testing_cuda
