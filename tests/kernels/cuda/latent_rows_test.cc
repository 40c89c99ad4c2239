// Latent rows gathered from a pool on the GPU have the CPU's bits.
#include "attend/kernels/kv_store/latent_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "attend/kernels/kv_store/reference_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "tests/kernels/conformance/cases/random.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"

namespace attend::testing_cuda {
namespace {

using conformance::Random;
using CudaGatherLatent = NeedsGpu;
using CudaCopyToHeads = NeedsGpu;
using CudaLengths = NeedsGpu;

Tensor normal(std::initializer_list<int64_t> shape, DType dtype) {
  Tensor tensor = Tensor::empty(shape, dtype);
  Random random(5, 0);
  visit_float_dtype(dtype, [&]<class T>(TypeTag<T>) {
    for (T& value : tensor.span<T>()) value = static_cast<T>(random.normal());
  });
  return tensor;
}

// Cache of normally distributed values.
Tensor scaled_rows(int64_t num_pages, int64_t page_size) {
  Tensor cache = Tensor::empty({num_pages, page_size, kernels::kScaledRow.bytes}, DType::kU8);
  Random random(6, 0);
  for (int64_t row = 0; row < num_pages * page_size; ++row) {
    std::vector<double> numbers(static_cast<size_t>(kernels::kScaledRow.width()));
    for (double& number : numbers) number = static_cast<double>(random.normal());
    kernels::reference::store_scaled_row(cache, row * kernels::kScaledRow.bytes, numbers);
  }
  return cache;
}

void expect_same_bytes(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(std::memcmp(a.view().data, b.view().data, a.view().num_bytes()), 0);
}

template <class T>
TensorView view_of(std::vector<T>& numbers, DType dtype) {
  return TensorView::contiguous(numbers.data(), dtype, {std::ssize(numbers)});
}

// Number of requests of a large step, with prefixes of different lengths: empty, ending within a chunk, and
// ending with a chunk.
struct Prefixes {
  static constexpr int kNumReqs = 67, kPageSize = 16, kNumPages = 512, kStride = 128;
  std::vector<int32_t> table = std::vector<int32_t>(kNumReqs * kStride), rows, seqlen_kv, cu_seqlen_q{0},
                       slot_map = std::vector<int32_t>(kNumPages * kPageSize);

  Prefixes() {
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7919 % slot_map.size());
    for (size_t i = 0; i < slot_map.size(); ++i)
      slot_map[i] = static_cast<int32_t>((i * 31 + 5) % slot_map.size());
    for (int r = 0; r < kNumReqs; ++r) {
      rows.push_back((r * 5 + 2) % kNumReqs);
      const int num_new = 1 + r % 3;
      seqlen_kv.push_back(num_new + (r % 4 == 0 ? 0 : (r * 13) % 100));
      cu_seqlen_q.push_back(cu_seqlen_q.back() + num_new);
    }
  }
};

TEST_F(CudaGatherLatent, WritesTheBitsOfTheCpu) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  Stream on_host;
  Prefixes prefixes;
  constexpr int kCount = 32;
  for (const DType from : {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3, DType::kU8}) {
    const bool scaled = from == DType::kU8;
    const int64_t width = scaled ? kernels::kScaledRow.width() : 72;
    const Tensor cache = scaled ? scaled_rows(Prefixes::kNumPages, Prefixes::kPageSize)
                                : normal({Prefixes::kNumPages, Prefixes::kPageSize, width}, from);
    for (const DType to : {DType::kBF16, DType::kF32}) {
      for (const bool mapped : {false, true}) {
        SCOPED_TRACE(testing::Message() << from << " to " << to << ", slot map " << mapped);
        const Tensor expected = Tensor::zeros({Prefixes::kNumReqs * kCount, width}, to);
        const Tensor got = Tensor::zeros({Prefixes::kNumReqs * kCount, width}, to);
        std::vector<int32_t> sums(Prefixes::kNumReqs + 1), lengths(Prefixes::kNumReqs), sums_got = sums,
                                                                                        lengths_got = lengths;
        kernels::GatherLatentArgs args{.cache = cache,
                                       .scale = 0.5f,
                                       .requests = {.table = prefixes.table.data(),
                                                    .stride = Prefixes::kStride,
                                                    .rows = prefixes.rows,
                                                    .seqlen_kv = prefixes.seqlen_kv,
                                                    .slot_map = mapped ? prefixes.slot_map.data() : nullptr},
                                       .cu_seqlen_q = prefixes.cu_seqlen_q,
                                       .first = 20,
                                       .count = kCount,
                                       .out = expected,
                                       .cu_seqlen_kv = sums,
                                       .seqlen_kv = lengths};
        kernels::gather_latent(args, on_host);
        DeviceArrays arrays(stream);
        const DeviceCopy cache_in(cache, stream), out(got, stream),
            sums_out(view_of(sums_got, DType::kI32), stream),
            lengths_out(view_of(lengths_got, DType::kI32), stream);
        args.cache = cache_in.view();
        args.requests.table = arrays.upload(std::span<const int32_t>(prefixes.table));
        args.requests.rows = arrays.view(std::span<const int32_t>(prefixes.rows));
        args.requests.seqlen_kv = arrays.view(std::span<const int32_t>(prefixes.seqlen_kv));
        args.requests.slot_map =
            mapped ? arrays.upload(std::span<const int32_t>(prefixes.slot_map)) : nullptr;
        args.cu_seqlen_q = arrays.view(std::span<const int32_t>(prefixes.cu_seqlen_q));
        args.out = out.view();
        args.cu_seqlen_kv = sums_out.view().span<int32_t>();
        args.seqlen_kv = lengths_out.view().span<int32_t>();
        kernels::gather_latent(args, stream);
        out.download(stream);
        sums_out.download(stream);
        lengths_out.download(stream);
        cuda::synchronize(stream);
        EXPECT_EQ(sums_got, sums);
        EXPECT_EQ(lengths_got, lengths);
        EXPECT_GT(sums.back(), 0);
        expect_same_bytes(expected, got);
      }
    }
  }
}

TEST_F(CudaCopyToHeads, CopiesTheRowToEveryHead) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  Stream on_host;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Tensor from = normal({37, 80}, dtype), expected = Tensor::zeros({37, 16, 192}, dtype),
                 got = Tensor::zeros({37, 16, 192}, dtype);
    kernels::copy_to_heads(from.view().slice(1, 16, 80), expected.view().slice(2, 128, 192), on_host);
    const DeviceCopy in(from, stream), out(got, stream);
    kernels::copy_to_heads(in.view().slice(1, 16, 80), out.view().slice(2, 128, 192), stream);
    out.download(stream);
    cuda::synchronize(stream);
    expect_same_bytes(expected, got);
  }
}

TEST_F(CudaLengths, AreDifferencesOfCumulativeLengths) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  std::vector<int32_t> lengths(300), got(300), sums{0};
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] = static_cast<int32_t>(i % 7);
    sums.push_back(sums.back() + lengths[i]);
  }
  DeviceArrays arrays(stream);
  const DeviceCopy out(view_of(got, DType::kI32), stream);
  kernels::cu_seqlens_to_lengths(arrays.view(std::span<const int32_t>(sums)), out.view().span<int32_t>(),
                                 stream);
  out.download(stream);
  cuda::synchronize(stream);
  EXPECT_EQ(got, lengths);
}

}  // namespace
}  // namespace attend::testing_cuda
