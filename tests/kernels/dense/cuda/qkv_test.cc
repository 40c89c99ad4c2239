// The fused launch of product, RoPE and store computes the bits of separate launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <list>
#include <memory>
#include <ostream>
#include <sstream>
#include <utility>
#include <vector>

#include "attend/kernels/fused/operations.h"
#include "tests/kernels/cuda/support/device_copy.h"
#include "tests/kernels/cuda/support/needs_gpu.h"
#include "tests/kernels/dense/quantized_weight.h"
#include "tests/kernels/dense/test_tensor.h"

namespace attend::kernels {
namespace {

using testing_cuda::DeviceArrays;
using testing_cuda::DeviceCopy;
using testing_cuda::kGpu;
using testing_support::Format;
using testing_support::TestTensor;
using testing_support::TestWeight;

using QkvNormRopeStore = testing_cuda::NeedsGpu;

struct Heads {
  int64_t num_q, num_kv, head_dim, hidden;
};
std::ostream& operator<<(std::ostream& out, const Heads& heads) {
  return out << heads.num_q << "/" << heads.num_kv << " heads of " << heads.head_dim << ", hidden "
             << heads.hidden;
}
// Heads with one feature group per half; CTAs with features of several heads, of which they process two, four
// and six groups together; partial chunks; fewer units than CTAs. With normalized heads: clusters of one to
// eight CTAs per head with one to four units each, and too many heads for clusters.
constexpr Heads kHeads[] = {{2, 1, 16, 8},    {8, 2, 64, 72},   {32, 8, 128, 136}, {16, 8, 128, 1024},
                            {3, 3, 256, 200}, {14, 2, 64, 896}, {80, 8, 128, 64}};
constexpr int64_t kRows[] = {1, 2, 7, 8, 16};

// Features of layers, including those that the fused launch does not support.
struct Variant {
  DType dtype = DType::kBF16, cache_dtype = DType::kBF16;
  bool bias = false, head_norms = false, with_norm = true;
  int64_t not_rotated = 0;                // elements of a head that are not rotated
  const Format* weight_format = nullptr;  // null: unquantized
};

class Layer {
 public:
  Layer(const Heads& heads, int64_t num_rows, const Variant& variant)
      : stream_(kGpu), arrays_(stream_.get()), num_rows_(num_rows) {
    const int64_t q_features = heads.num_q * heads.head_dim, kv_features = heads.num_kv * heads.head_dim;
    const int64_t features = q_features + 2 * kv_features;
    const auto norm = [&](int64_t size) { return random({size}, variant.dtype, 1.0f); };
    product_ = {.x = random({num_rows, heads.hidden}, variant.dtype, 2.0f),
                .weight = variant.weight_format == nullptr
                              ? Weight(random({features, heads.hidden}, variant.dtype, 0.05f))
                              : quantized(*variant.weight_format, features, heads.hidden),
                .bias = variant.bias ? random({features}, variant.dtype, 1.0f) : TensorView{},
                .out = random({num_rows, features}, variant.dtype, 1.0f)};
    if (variant.with_norm)
      product_.norm = {norm(heads.hidden), 1e-5f, random({num_rows, heads.hidden}, variant.dtype, 1.0f)};
    const int64_t half = (heads.head_dim - variant.not_rotated) / 2;
    constexpr int64_t kPositions = 40;
    const auto part = [&](int64_t begin, int64_t end) {
      return product_.out.slice(1, begin, end).split(1, heads.head_dim);
    };
    std::vector<int32_t> positions;
    for (int64_t row = 0; row < num_rows; ++row) {
      positions.push_back(static_cast<int32_t>((row * 7 + 3) % kPositions));
      slots_.push_back(row % 5 == 4 ? -1 : static_cast<int32_t>(kPageSize + (row * 11) % 40));
    }
    rope_ = {.q = part(0, q_features),
             .k = part(q_features, q_features + kv_features),
             .q_norm = variant.head_norms ? norm(heads.head_dim) : TensorView{},
             .k_norm = variant.head_norms ? norm(heads.head_dim) : TensorView{},
             .positions = arrays_.view<int32_t>(positions),
             .cos = random({kPositions, half}, DType::kF32, 1.0f),
             .sin = random({kPositions, half}, DType::kF32, 1.0f)};
    store_ = {.k = rope_.k,
              .v = part(q_features + kv_features, features),
              .to = {.k = cache(heads, variant.cache_dtype),
                     .v = cache(heads, variant.cache_dtype),
                     .slots = arrays_.view<int32_t>(slots_),
                     .k_scale = 0.5f,
                     .v_scale = 2.0f}};
  }

  void run_separately() {
    linear(product_, stream());
    norm_rope_store(rope_, store_, stream());
  }
  void run_fused() { qkv_norm_rope_store(product_, rope_, store_, stream()); }

  // Restores the initial contents of all tensors.
  void reset() {
    for (size_t i = 0; i < copies_.size(); ++i) cuda::copy(hosts_[i], copies_[i].view(), stream());
  }
  // Bytes of the product's output except k and v, and of the cache.
  std::vector<std::byte> results() {
    const int64_t q_bytes = rope_.q.shape[1] * rope_.q.shape[2] * size(product_.out);
    const int64_t row_bytes = product_.out.shape[1] * size(product_.out);
    const std::vector<std::byte> out = bytes_of(product_.out);
    std::vector<std::byte> bytes;
    for (int64_t row = 0; row < num_rows_; ++row)
      bytes.insert(bytes.end(), out.begin() + row * row_bytes, out.begin() + row * row_bytes + q_bytes);
    for (const TensorView& cache : {store_.to.k, store_.to.v}) {
      const std::vector<std::byte> stored = bytes_of(cache);
      bytes.insert(bytes.end(), stored.begin(), stored.end());
    }
    return bytes;
  }
  // Slots of the cache that were written; the cache is initially zero.
  std::vector<int> written_slots() {
    const std::vector<std::byte> k = bytes_of(store_.to.k), v = bytes_of(store_.to.v);
    const int64_t num_slots = store_.to.k.shape[0] * kPageSize;
    const int64_t slot_bytes = std::ssize(k) / num_slots;
    const auto is_written = [&](const std::vector<std::byte>& bytes, int64_t slot) {
      const auto first = bytes.begin() + slot * slot_bytes;
      return std::any_of(first, first + slot_bytes, [](std::byte byte) { return byte != std::byte{}; });
    };
    std::vector<int> written;
    for (int64_t slot = 0; slot < num_slots; ++slot)
      if (is_written(k, slot) || is_written(v, slot)) written.push_back(static_cast<int>(slot));
    return written;
  }
  const std::vector<int32_t>& slots() const { return slots_; }
  Stream& stream() { return stream_.get(); }

 private:
  static constexpr int64_t kPageSize = 4;

  static int64_t size(const TensorView& view) { return static_cast<int64_t>(size_of(view.dtype)); }
  TensorView upload(const TensorView& host) {
    hosts_.push_back(host);
    return copies_.emplace_back(host, stream()).view();
  }
  TensorView random(std::initializer_list<int64_t> sizes, DType dtype, float deviation) {
    tensors_.push_back(TestTensor::random(sizes, dtype, tensors_.size() + 1, deviation));
    return upload(tensors_.back());
  }
  Weight quantized(const Format& format, int64_t num_outs, int64_t in_features) {
    weight_ = testing_support::random_weight(format, num_outs, in_features);
    Weight on_device = weight_->view;
    on_device.data = upload(weight_->view.data);
    on_device.scales = upload(weight_->view.scales);
    if (!weight_->view.zeros.empty()) on_device.zeros = upload(weight_->view.zeros);
    return on_device;
  }
  TensorView cache(const Heads& heads, DType dtype) {
    caches_.push_back(Tensor::zeros({12, kPageSize, heads.num_kv, heads.head_dim}, dtype));
    return upload(caches_.back());
  }
  std::vector<std::byte> bytes_of(const TensorView& view) {
    std::vector<std::byte> bytes(view.num_bytes());
    TensorView host = view;
    host.data = bytes.data();
    host.device = {};
    cuda::copy(view, host, stream());
    cuda::synchronize(stream());
    return bytes;
  }

  cuda::OwnedStream stream_;
  DeviceArrays arrays_;
  int64_t num_rows_;
  std::vector<int32_t> slots_;
  std::list<TestTensor> tensors_;
  std::unique_ptr<TestWeight> weight_;
  std::list<Tensor> caches_;
  std::vector<TensorView> hosts_;
  std::vector<DeviceCopy> copies_;
  LinearArgs product_;
  NormRopeArgs rope_;
  StoreKvArgs store_;
};

class QkvOfHeads : public testing_cuda::NeedsGpu, public testing::WithParamInterface<Heads> {};

void expect_bits_of_separate_launches(const Heads& heads, int64_t num_rows, const Variant& variant) {
  Layer layer(heads, num_rows, variant);
  layer.run_separately();
  const std::vector<std::byte> expected = layer.results();
  layer.reset();
  layer.run_fused();
  std::ostringstream weights;
  if (variant.weight_format != nullptr) weights << " by " << *variant.weight_format;
  ASSERT_EQ(layer.results(), expected)
      << heads << ", " << num_rows << " rows, " << variant.dtype << weights.str() << ", cache "
      << variant.cache_dtype << (variant.bias ? ", bias" : "")
      << (variant.head_norms ? ", norms of heads" : "")
      << (variant.not_rotated > 0 ? ", turned in part" : "");
}

TEST_P(QkvOfHeads, HasTheBitsOfSeparateLaunches) {
  constexpr Variant kVariants[] = {{},
                                   {.bias = true, .with_norm = false},
                                   {.cache_dtype = DType::kF8E4M3},
                                   {.head_norms = true},
                                   {.cache_dtype = DType::kF8E4M3, .bias = true, .head_norms = true},
                                   {.not_rotated = 8},
                                   {.dtype = DType::kF16, .cache_dtype = DType::kF16}};
  const Heads& heads = GetParam();
  for (const int64_t num_rows : kRows)
    for (const Variant& variant : kVariants)
      ASSERT_NO_FATAL_FAILURE(expect_bits_of_separate_launches(heads, num_rows, variant));
}
INSTANTIATE_TEST_SUITE_P(Each, QkvOfHeads, testing::ValuesIn(kHeads));

// Numbers of inputs that the skinny quantized GEMM supports, and some for which it supports only one row.
constexpr Heads kQuantizedHeads[] = {
    {2, 1, 16, 512}, {32, 8, 128, 1024}, {14, 2, 64, 2560}, {80, 8, 128, 8192}};
constexpr Format kWeightFormats[] = {{WeightFormat::kFp8, 1, 0, DType::kF32},
                                     {WeightFormat::kFp8, 128, 128, DType::kF32},
                                     {WeightFormat::kInt8, 1, 128, DType::kF32},
                                     {WeightFormat::kInt4, 1, 128, DType::kBF16},
                                     {WeightFormat::kInt4, 1, 128, DType::kF16, true}};

TEST_F(QkvNormRopeStore, HasTheBitsOfSeparateLaunchesOfQuantizedWeights) {
  for (const Format& format : kWeightFormats) {
    const Variant variants[] = {{.weight_format = &format},
                                {.bias = true, .with_norm = false, .weight_format = &format},
                                {.cache_dtype = DType::kF8E4M3, .weight_format = &format},
                                {.head_norms = true, .weight_format = &format},
                                {.dtype = DType::kF16, .cache_dtype = DType::kF16, .weight_format = &format}};
    for (const Heads& heads : kQuantizedHeads)
      for (const int64_t num_rows : {1, 2, 8, 9})
        for (const Variant& variant : variants)
          ASSERT_NO_FATAL_FAILURE(expect_bits_of_separate_launches(heads, num_rows, variant));
  }
}

TEST_F(QkvNormRopeStore, DoesNotWriteOtherSlots) {
  Layer layer(kHeads[1], 16, {});
  layer.run_fused();
  const std::vector<int> written = layer.written_slots();
  std::vector<int> expected(layer.slots().begin(), layer.slots().end());
  std::erase(expected, -1);
  std::ranges::sort(expected);
  EXPECT_EQ(written, expected);
}

TEST_F(QkvNormRopeStore, ProducesTheSameBitsAHundredTimesAndReplayed) {
  for (const bool head_norms : {false, true})
    for (const int64_t num_rows : {1, 16}) {
      Layer layer(kHeads[3], num_rows, {.head_norms = head_norms});
      layer.run_separately();
      const std::vector<std::byte> expected = layer.results();
      for (int i = 0; i < 100; ++i) {
        layer.reset();
        layer.run_fused();
        ASSERT_EQ(layer.results(), expected) << num_rows << " rows, repeat " << i;
      }
      cuda::Graph graph(layer.stream(), [&] { layer.run_fused(); });
      layer.reset();
      graph.launch(layer.stream());
      ASSERT_EQ(layer.results(), expected) << num_rows << " rows, replayed";
    }
}

}  // namespace
}  // namespace attend::kernels
