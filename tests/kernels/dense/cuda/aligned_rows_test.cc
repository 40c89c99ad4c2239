// Kernels that move 16 aligned bytes together compute the bits of unaligned rows.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <list>
#include <vector>

#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::TestTensor;

using AlignedRows = testing_cuda::NeedsGpu;

constexpr DType kTypes[] = {DType::kBF16, DType::kF16};

// Tensors on the GPU with rows at multiples of 16 bytes, or at odd elements. Random values are the same for
// both.
class Tensors {
 public:
  explicit Tensors(bool aligned) : aligned_(aligned), stream_(kGpu), arrays_(stream_.get()) {}

  Stream& stream() { return stream_.get(); }
  TensorView random(int64_t num_rows, int64_t num_columns, DType dtype, float deviation = 1.0f) {
    const TestTensor values =
        TestTensor::random({num_rows, num_columns}, dtype, hosts_.size() + 1, deviation);
    return rows_of(num_columns, values);
  }
  TensorView zeros(int64_t num_rows, int64_t num_columns, DType dtype) {
    return rows_of(num_columns, TestTensor({num_rows, num_columns}, dtype));
  }
  View<const int32_t> array(const std::vector<int32_t>& values) {
    return arrays_.view(std::span<const int32_t>(values));
  }
  // Bytes of all rows, in the order of construction.
  std::vector<std::vector<std::byte>> rows() {
    for (const DeviceCopy& copy : copies_) copy.download(stream());
    cuda::synchronize(stream());
    std::vector<std::vector<std::byte>> rows;
    for (const TensorView& host : hosts_)
      for (int64_t row = 0; row < host.shape[0]; ++row) {
        const auto* const begin = static_cast<const std::byte*>(host[row].data);
        rows.emplace_back(begin, begin + host[row].num_bytes());
      }
    return rows;
  }

 private:
  TensorView rows_of(int64_t num_columns, const TestTensor& values) {
    const TensorView from = values;
    const int64_t first = aligned_ ? 0 : 1, stride = num_columns + (aligned_ ? 8 : 2);
    const TestTensor& wide =
        storage_.emplace_back(std::initializer_list<int64_t>{from.shape[0], stride}, from.dtype);
    const TensorView host = wide.view().slice(1, first, first + num_columns);
    for (int64_t row = 0; row < from.shape[0]; ++row)
      std::memcpy(host[row].data, from[row].data, host[row].num_bytes());
    hosts_.push_back(host);
    return copies_.emplace_back(wide, stream()).view().slice(1, first, first + num_columns);
  }

  bool aligned_;
  cuda::OwnedStream stream_;
  DeviceArrays arrays_;
  std::list<TestTensor> storage_;
  std::vector<TensorView> hosts_;
  std::list<DeviceCopy> copies_;
};

void expect_same_bits(const std::function<void(Tensors&)>& run) {
  Tensors aligned(true), unaligned(false);
  run(aligned);
  run(unaligned);
  ASSERT_EQ(aligned.rows(), unaligned.rows());
}

TEST_F(AlignedRows, NormsAndActivationsMatchUnalignedRows) {
  for (const DType dtype : kTypes)
    for (const int64_t dim : {8, 24, 256, 264, 1000, 1024, 3072, 4096, 8192, 14336, 20000}) {
      SCOPED_TRACE(testing::Message() << dtype << " dim " << dim);
      expect_same_bits([&](Tensors& tensors) {
        const TensorView x = tensors.random(3, dim, dtype), residual = tensors.random(3, dim, dtype);
        const TensorView weight = tensors.random(1, dim, dtype)[0], out = tensors.zeros(3, dim, dtype);
        rms_norm(x, weight, 1e-6f, out, tensors.stream());
        add_rms_norm(x, residual, weight, 1e-6f, x, tensors.stream());
        rms_norm_add(tensors.random(3, dim, dtype), tensors.random(1, dim, DType::kF32)[0], 1e-6f, residual,
                     tensors.stream());
        const TensorView gate_up = tensors.random(3, 2 * dim, dtype, 4.0f);
        silu_mul(gate_up, tensors.zeros(3, dim, dtype), tensors.stream());
        gelu_mul(gate_up, tensors.zeros(3, dim, dtype), tensors.stream());
        gelu_tanh_mul(gate_up, tensors.zeros(3, dim, dtype), tensors.stream());
        soft_cap(x, 2.0f, tensors.stream());
      });
    }
}

struct Heads {
  int64_t num_q, num_kv, head_dim;
};

// RMSNorm and RoPE of q and k, with or without a store of k and v.
struct Variant {
  DType cache_dtype = DType::kBF16;
  bool norms_q = true, norms_k = true, stores = true;
};

void run_norm_rope(Tensors& tensors, const Heads& heads, int64_t num_tokens, DType dtype,
                   const Variant& variant) {
  constexpr int64_t kPositions = 50, kPageSize = 4, kPages = 12;
  std::vector<int32_t> positions, slots;
  for (int64_t token = 0; token < num_tokens; ++token) {
    positions.push_back(static_cast<int32_t>(token * 7 % kPositions));
    // Tokens with a separate slot are stored, except some without a slot.
    const bool stored = token < (kPages - 1) * kPageSize && token % 5 != 4;
    slots.push_back(stored ? static_cast<int32_t>(kPageSize + token) : -1);
  }
  const int64_t half = heads.head_dim / 2;
  const int64_t k_begin = heads.num_q * heads.head_dim, v_begin = k_begin + heads.num_kv * heads.head_dim;
  const int64_t end = v_begin + heads.num_kv * heads.head_dim;
  const TensorView qkv = tensors.random(num_tokens, end, dtype);
  const auto part = [&](int64_t from, int64_t to) { return qkv.slice(1, from, to).split(1, heads.head_dim); };
  const auto weight = [&](bool norms) {
    return norms ? tensors.random(1, heads.head_dim, dtype)[0] : TensorView();
  };
  const auto cache = [&] {
    return tensors.zeros(kPages * kPageSize, heads.num_kv * heads.head_dim, variant.cache_dtype)
        .split(1, heads.head_dim)
        .split(0, kPageSize);
  };
  const NormRopeArgs rope{.q = part(0, k_begin),
                          .k = part(k_begin, v_begin),
                          .q_norm = weight(variant.norms_q),
                          .k_norm = weight(variant.norms_k),
                          .positions = tensors.array(positions),
                          .cos = tensors.random(kPositions, half, DType::kF32),
                          .sin = tensors.random(kPositions, half, DType::kF32)};
  if (!variant.stores) return norm_rope(rope, tensors.stream());
  norm_rope_store(
      rope,
      {.k = rope.k,
       .v = part(v_begin, end),
       .to = {.k = cache(), .v = cache(), .slots = tensors.array(slots), .k_scale = 0.7f, .v_scale = 1.0f}},
      tensors.stream());
}

TEST_F(AlignedRows, HeadsMatchUnalignedRowsInNormRopeStore) {
  constexpr Variant kVariants[] = {{},
                                   {.cache_dtype = DType::kF8E4M3},
                                   {.cache_dtype = DType::kF8E5M2, .norms_q = false},
                                   {.cache_dtype = DType::kF16, .norms_k = false},
                                   {.cache_dtype = DType::kF32, .norms_q = false, .norms_k = false},
                                   {.stores = false}};
  // Heads of one to sixteen groups per half, some of which leave lanes idle, and warps with heads of
  // different kinds.
  for (const Heads& heads : std::initializer_list<Heads>{{2, 1, 16},
                                                         {14, 2, 64},
                                                         {3, 3, 80},
                                                         {4, 1, 96},
                                                         {7, 1, 112},
                                                         {16, 8, 128},
                                                         {5, 1, 192},
                                                         {3, 1, 256}})
    for (const DType dtype : kTypes)
      for (const Variant& variant : kVariants)
        for (const int64_t num_tokens : {1, 13}) {
          SCOPED_TRACE(testing::Message()
                       << num_tokens << " tokens, heads " << heads.num_q << "/" << heads.num_kv << " of "
                       << heads.head_dim << ", " << dtype << ", cache " << variant.cache_dtype << ", norms "
                       << variant.norms_q << variant.norms_k << ", stores " << variant.stores);
          expect_same_bits(
              [&](Tensors& tensors) { run_norm_rope(tensors, heads, num_tokens, dtype, variant); });
        }
}

// A warp processes one, some or all of a token's heads in sequence.
TEST_F(AlignedRows, HeadsMatchUnalignedRowsInPrompts) {
  for (const int64_t num_tokens : {700, 3000, 17000})
    expect_same_bits([&](Tensors& tensors) {
      run_norm_rope(tensors, {27, 6, 16}, num_tokens, DType::kBF16, {});
    });
}

}  // namespace
}  // namespace attend::kernels
