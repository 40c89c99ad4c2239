// Times the small operations between GEMMs and attention on the GPU, in bf16. For each shape, operation and
// number of rows it prints microseconds, the rate of the bytes that must be moved, and the percentage of the
// fastest read measured in this run. Calls rotate through copies of their tensors: those of prompts exceed L2
// in total, those of decode steps stay in it, as in a step.
//
//   cuda_elementwise_bench [ROWS...]
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "attend/bench/cuda/gpu_probes.h"
#include "attend/bench/timing.h"
#include "attend/kernels/common/fill_random.h"
#include "attend/kernels/kv_store/store.h"
#include "attend/kernels/norm_rope/elementwise.h"
#include "attend/kernels/norm_rope/rope.h"
#include "benchmarks/cuda/counts.h"

namespace attend::bench {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int kCopies = 8, kRepeats = 24;
constexpr int64_t kPageSize = 16, kElementBytes = 2;

struct Shape {
  const char* name;
  int64_t hidden, intermediate, num_q_heads, num_kv_heads, head_dim, vocab_size;
  bool norms_heads;
};
constexpr Shape kShapes[] = {{"0.6B", 1024, 3072, 16, 8, 128, 151936, true},
                             {"8B", 4096, 14336, 32, 8, 128, 128256, false}};

// Random rows in several copies.
class Copies {
 public:
  Copies(int64_t num_rows, int64_t num_columns, Stream& stream)
      : num_rows_(num_rows), all_(cuda::empty({kCopies * num_rows, num_columns}, DType::kBF16, kGpu)) {
    kernels::fill_random(all_, {}, stream);
  }
  TensorView operator[](int call) const {
    const int64_t first = call % kCopies * num_rows_;
    return all_.view().slice(0, first, first + num_rows_);
  }

 private:
  int64_t num_rows_;
  Tensor all_;
};

Tensor random_weight(int64_t size, Stream& stream) {
  Tensor weight = cuda::empty({size}, DType::kBF16, kGpu);
  kernels::fill_random(weight, {.deviation = 0.5f}, stream);
  return weight;
}

template <class T>
Tensor upload(const std::vector<T>& values, DType dtype, std::initializer_list<int64_t> shape) {
  return cuda::copy_to(TensorView::contiguous(const_cast<T*>(values.data()), dtype, shape), kGpu);
}

Tensor upload_range(int64_t first, int64_t count) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<int32_t>(first + i));
  return upload(values, DType::kI32, {count});
}

// Operation on a number of rows: the minimum bytes that it reads and writes, and its calls.
struct Operation {
  const char* name;
  int64_t num_elements;
  std::function<void(int)> call;
};

Operation embedding(const Shape& shape, int64_t num_rows, Stream& stream) {
  const Tensor table = cuda::empty({shape.vocab_size, shape.hidden}, DType::kBF16, kGpu);
  kernels::fill_random(table, {}, stream);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < num_rows; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % shape.vocab_size));
  return {
      "embedding", 2 * num_rows * shape.hidden,
      [=, &stream, ids = upload(ids, DType::kI32, {num_rows}), out = Copies(num_rows, shape.hidden, stream)](
          int call) { kernels::embedding(ids.span<int32_t>(), table, out[call], stream); }};
}

Operation rms_norm(const Shape& shape, int64_t num_rows, Stream& stream) {
  return {"rms_norm", 2 * num_rows * shape.hidden,
          [weight = random_weight(shape.hidden, stream), x = Copies(num_rows, shape.hidden, stream),
           out = Copies(num_rows, shape.hidden, stream),
           &stream](int call) { kernels::rms_norm(x[call], weight, 1e-6f, out[call], stream); }};
}

Operation add_rms_norm(const Shape& shape, int64_t num_rows, Stream& stream) {
  return {"add_rms_norm", 4 * num_rows * shape.hidden,
          [weight = random_weight(shape.hidden, stream), x = Copies(num_rows, shape.hidden, stream),
           residual = Copies(num_rows, shape.hidden, stream), &stream](int call) {
            kernels::add_rms_norm(x[call], residual[call], weight, 1e-6f, x[call], stream);
          }};
}

Operation silu_mul(const Shape& shape, int64_t num_rows, Stream& stream) {
  return {"silu_mul", 3 * num_rows * shape.intermediate,
          [gate_up = Copies(num_rows, 2 * shape.intermediate, stream),
           out = Copies(num_rows, shape.intermediate, stream),
           &stream](int call) { kernels::silu_mul(gate_up[call], out[call], stream); }};
}

// Angles that rotate heads of this size without changing their norm, so that repeated rotation is stable.
struct Angles {
  Tensor cos, sin;
  Angles(int64_t num_positions, int64_t half) {
    std::vector<float> cosines, sines;
    for (int64_t i = 0; i < num_positions * half; ++i) {
      const double angle = static_cast<double>(i / half) *
                           std::pow(1e6, -static_cast<double>(i % half) / static_cast<double>(half));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
    cos = upload(cosines, DType::kF32, {num_positions, half});
    sin = upload(sines, DType::kF32, {num_positions, half});
  }
};

Operation norm_rope_store(const Shape& shape, int64_t num_rows, Stream& stream) {
  const int64_t head_dim = shape.head_dim;
  const int64_t k_begin = shape.num_q_heads * head_dim, v_begin = k_begin + shape.num_kv_heads * head_dim;
  const int64_t end = v_begin + shape.num_kv_heads * head_dim;
  // Each copy of a cache has one slot per row, and an unused page.
  const int64_t num_pages = (num_rows + kPageSize - 1) / kPageSize + 1;
  const auto cache = [&] {
    return cuda::zeros({kCopies * num_pages, kPageSize, shape.num_kv_heads, head_dim}, DType::kBF16, kGpu);
  };
  const auto weight = [&] { return shape.norms_heads ? random_weight(head_dim, stream) : Tensor(); };
  return {"norm_rope_store", 2 * num_rows * end + num_rows * head_dim * 4 / kElementBytes,
          [=, &stream, q_norm = weight(), k_norm = weight(), qkv = Copies(num_rows, end, stream),
           k_cache = cache(), v_cache = cache(), slots = upload_range(kPageSize, num_rows),
           positions = upload_range(0, num_rows), angles = Angles(num_rows, head_dim / 2)](int call) {
            const auto heads = [&](int64_t from, int64_t to) {
              return qkv[call].slice(1, from, to).split(1, head_dim);
            };
            const auto pages = [&](const Tensor& all) {
              const int64_t first = call % kCopies * num_pages;
              return all.view().slice(0, first, first + num_pages);
            };
            const TensorView k = heads(k_begin, v_begin);
            kernels::norm_rope_store(
                {.q = heads(0, k_begin),
                 .k = k,
                 .q_norm = q_norm,
                 .k_norm = k_norm,
                 .positions = positions.span<int32_t>(),
                 .cos = angles.cos,
                 .sin = angles.sin},
                {.k = k,
                 .v = heads(v_begin, end),
                 .to = {.k = pages(k_cache), .v = pages(v_cache), .slots = slots.span<int32_t>()}},
                stream);
          }};
}

int main(const std::vector<int64_t>& row_counts) {
  cuda::OwnedStream owned(kGpu);
  Stream& stream = owned.get();
  const double read_rate = fastest_read(stream);
  std::printf("fastest read %.0f GB/s\n", read_rate * 1e-3);
  for (const Shape& shape : kShapes)
    for (const auto make : {embedding, rms_norm, add_rms_norm, silu_mul, norm_rope_store})
      for (const int64_t num_rows : row_counts) {
        const Operation operation = make(shape, num_rows, stream);
        const double us = time_graph(stream, kRepeats, operation.call);
        const double rate = static_cast<double>(operation.num_elements * kElementBytes) / us;
        std::printf("%-4s %-15s %5d rows %7.1f us %5.0f GB/s %5.1f %%\n", shape.name, operation.name,
                    static_cast<int>(num_rows), us, rate * 1e-3, 100.0 * rate / read_rate);
        std::fflush(stdout);
      }
  return 0;
}

}  // namespace
}  // namespace attend::bench

int main(int argc, char** argv) {
  return attend::bench::main(attend::bench::parse_counts(argc, argv, {1, 32, 128, 256, 1024, 8192}));
}
