// Times kernels::linear for few and many rows, compared with its limits: reading the weights' bytes, and the
// f32 multiply-accumulate peak. Each repeat measures both limits and the kernel in sequence, so that other
// load affects them equally; medians are printed. A single thread is timed by its CPU time, which excludes
// waiting for a CPU.
//
//   linear_bench [threads] [out_features] [in_features] [number of weight matrices, used in turn]
//                [what the weights are: see kElements; "Q4_K"; "int4+int8" with x in int8] [instruction set]
//                [rows...]
#include <immintrin.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "attend/base/error.h"
#include "attend/base/math.h"
#include "attend/base/parallel.h"
#include "attend/kernels/gemm/cpu/linear.h"
#include "attend/tensor/arena.h"

namespace {

using attend::Arena;
using attend::DType;
using attend::Tensor;
using attend::TensorView;
using attend::Weight;
using attend::WeightFormat;
using attend::kernels::cpu::Isa;

double seconds_now() {
  timespec now;
  clock_gettime(attend::num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Fn>
double measure_seconds(const Fn& fn) {
  const double start = seconds_now();
  fn();
  return seconds_now() - start;
}

// Sums `count` floats. Using the result prevents the compiler from removing the reads.
__attribute__((target("avx2"))) float read_floats(const float* data, int64_t count) {
  __m256 sums[8] = {};
  for (int64_t i = 0; i + 64 <= count; i += 64)
    for (int j = 0; j < 8; ++j) sums[j] = _mm256_add_ps(sums[j], _mm256_loadu_ps(data + i + 8 * j));
  for (int j = 1; j < 8; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  return sums[0][0];
}

void read_all(const TensorView& weight) {
  const int64_t count = static_cast<int64_t>(weight.num_bytes()) / 4;
  const int64_t threads = attend::num_threads(), share = count / threads;
  volatile float sink = 0;
  attend::parallel_for(threads, [&](int64_t part, int) {
    sink = read_floats(static_cast<const float*>(weight.data) + part * share, share);
  });
}

// Independent sums of different values, so that the compiler cannot merge them.
constexpr int kPeakSteps = 200000, kPeakSums = 12;

__attribute__((target("avx512f"))) float multiply_add_512() {
  __m512 sums[kPeakSums];
  for (int i = 0; i < kPeakSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 x = _mm512_set1_ps(0.5f);
  for (int step = 0; step < kPeakSteps; ++step)
    for (int i = 0; i < kPeakSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], x, x);
  float result = 0;
  for (int i = 0; i < kPeakSums; ++i) result += sums[i][0];
  return result;
}

__attribute__((target("avx2,fma"))) float multiply_add_256() {
  __m256 sums[kPeakSums];
  for (int i = 0; i < kPeakSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 x = _mm256_set1_ps(0.5f);
  for (int step = 0; step < kPeakSteps; ++step)
    for (int i = 0; i < kPeakSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], x, x);
  float result = 0;
  for (int i = 0; i < kPeakSums; ++i) result += sums[i][0];
  return result;
}

// Returns the multiply-adds per second of all threads.
double measure_peak(Isa isa) {
  const int threads = attend::num_threads(), lanes = isa >= Isa::kAvx512 ? 16 : 8;
  volatile float sink = 0;
  const double seconds = measure_seconds([&] {
    attend::parallel_for(threads,
                         [&](int64_t, int) { sink = lanes == 16 ? multiply_add_512() : multiply_add_256(); });
  });
  return static_cast<double>(threads) * kPeakSteps * kPeakSums * lanes / seconds;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// Weight formats. Scales are 1, since time does not depend on them.
struct Elements {
  const char* name;
  WeightFormat format;
  DType dtype;
  DType scale_dtype = DType::kF32;
  int64_t group_outs = 0, group_ins = 0;  // 0: all inputs
  bool rounds_x = false;                  // to bfloat16, or to int8
  attend::BlockFormat block_format = attend::BlockFormat::kQ4_0;
};
constexpr Elements kElements[] = {
    {"bfloat16", WeightFormat::kPlain, DType::kBF16},
    {"rounded", WeightFormat::kPlain, DType::kBF16, DType::kF32, 0, 0, true},
    {"float16", WeightFormat::kPlain, DType::kF16},
    {"float32", WeightFormat::kPlain, DType::kF32},
    {"fp8", WeightFormat::kFp8, DType::kF8E4M3, DType::kF32, 1, 0},
    {"fp8-blocks", WeightFormat::kFp8, DType::kF8E4M3, DType::kF32, 128, 128},
    {"int8", WeightFormat::kInt8, DType::kI8, DType::kF32, 1, 0},
    {"int4", WeightFormat::kInt4, DType::kU8, DType::kBF16, 1, 128},
    {"int4-32", WeightFormat::kInt4, DType::kU8, DType::kBF16, 1, 32},
    {"mxfp4", WeightFormat::kMxFp4, DType::kU8, DType::kU8, 1, 32},
    // GGUF's block formats, by their names.
    {"blocks", WeightFormat::kBlocks, DType::kU8},
};

void fill(const Tensor& tensor) {
  const int64_t count = tensor.view().num_elements();
  if (tensor.dtype() == DType::kU8) return void(std::fill_n(tensor.as<uint8_t>(), count, uint8_t{127}));
  if (tensor.dtype() == DType::kI8) return void(std::fill_n(tensor.as<int8_t>(), count, int8_t{64}));
  attend::visit_float_dtype(
      tensor.dtype(), [&]<class T>(attend::TypeTag<T>) { std::fill_n(tensor.as<T>(), count, T(0.5f)); });
}

int64_t data_columns(const Elements& elements, int64_t in_features) {
  if (elements.format == WeightFormat::kBlocks) {
    const attend::BlockLayout layout = attend::block_layout(elements.block_format);
    return in_features / layout.elements * layout.bytes;
  }
  return attend::has_four_bits(elements.format) ? in_features / 2 : in_features;
}

Weight make_weight(Arena& arena, const Elements& elements, int64_t num_outs, int64_t in_features) {
  const Tensor data = arena.allocate({num_outs, data_columns(elements, in_features)}, elements.dtype);
  fill(data);
  Weight weight(data);
  weight.format = elements.format;
  if (elements.format == WeightFormat::kPlain) return weight;
  if (elements.format == WeightFormat::kBlocks) {
    weight.block_format = elements.block_format;
    return weight;
  }
  weight.group_outs = elements.group_outs;
  weight.group_ins = elements.group_ins == 0 ? in_features : elements.group_ins;
  const Tensor scales = arena.allocate(
      {attend::ceil_div(num_outs, weight.group_outs), attend::ceil_div(in_features, weight.group_ins)},
      elements.scale_dtype);
  fill(scales);
  weight.scales = scales;
  return weight;
}

struct Setup {
  int64_t num_outs, in_features, num_weights;
  Elements elements;
  Isa isa;
  std::vector<int64_t> num_rows;
};

void time_linear(const Setup& setup) {
  const auto bytes = static_cast<size_t>(setup.num_outs * data_columns(setup.elements, setup.in_features)) *
                     attend::size_of(setup.elements.dtype);
  // Scales need at most a quarter of the weight's bytes: 4 bytes for 16 one-byte values.
  Arena arena((bytes + bytes / 4 + 128) * static_cast<size_t>(setup.num_weights));
  std::vector<Weight> weights;
  for (int64_t i = 0; i < setup.num_weights; ++i)
    weights.push_back(make_weight(arena, setup.elements, setup.num_outs, setup.in_features));
  for (const int64_t num_rows : setup.num_rows) {
    const Tensor x = Tensor::zeros({num_rows, setup.in_features}, DType::kF32);
    const Tensor out = Tensor::zeros({num_rows, setup.num_outs}, DType::kF32);
    const double products = static_cast<double>(num_rows * setup.num_outs * setup.in_features);
    const Tensor buffer = Tensor::empty({static_cast<int64_t>(attend::kernels::cpu::linear_workspace_bytes(
                                            num_rows, setup.in_features, setup.isa, setup.elements.format))},
                                        DType::kU8);
    const attend::View<std::byte> workspace(static_cast<std::byte*>(buffer.view().data),
                                            buffer.view().num_bytes());
    std::vector<double> reads, peaks, times, shares;
    for (int64_t repeat = 0; repeat < (num_rows > 64 ? 8 : 40); ++repeat) {
      const auto weight = [&](int64_t turn) -> const Weight& {
        return weights[static_cast<size_t>((2 * repeat + turn) % setup.num_weights)];
      };
      peaks.push_back(measure_peak(setup.isa));
      reads.push_back(measure_seconds([&] { read_all(weight(0).data); }));
      times.push_back(measure_seconds([&] {
        attend::kernels::cpu::linear({.x = x,
                                      .weight = weight(1),
                                      .bias = {},
                                      .out = out,
                                      .workspace = workspace,
                                      .rounds_x = setup.elements.rounds_x},
                                     setup.isa);
      }));
      shares.push_back(std::max(reads.back(), products / peaks.back()) / times.back());
    }
    const double gigabytes = static_cast<double>(bytes) * 1e-9, linear = median(times);
    std::printf(
        "%-10s %4ld rows %9.0f us %6.1f GB/s (read %6.1f) %7.1f GFLOP/s (peak %7.1f) %3.0f %% of limit\n",
        setup.elements.name, static_cast<long>(num_rows), linear * 1e6, gigabytes / linear,
        gigabytes / median(reads), 2e-9 * products / linear, 2e-9 * median(peaks), 100 * median(shares));
  }
}

// A name with the suffix "+int8" rounds x.
Elements elements_named(std::string name) {
  constexpr std::string_view kSuffix = "+int8";
  if (name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
    Elements elements = elements_named(name);
    elements.rounds_x = true;
    return elements;
  }
  std::string names;
  for (int format = 0; format <= static_cast<int>(attend::BlockFormat::kMxFp4); ++format) {
    Elements elements = std::end(kElements)[-1];
    elements.block_format = static_cast<attend::BlockFormat>(format);
    elements.name = attend::block_layout(elements.block_format).name.data();
    if (name == elements.name) return elements;
  }
  for (const Elements& elements : kElements) {
    if (name == elements.name) return elements;
    names += std::string(names.empty() ? "" : ", ") + elements.name;
  }
  attend::fail(attend::ErrorCode::kInvalidArgument, "weights in ", name, ": linear_bench supports ", names);
}

Isa isa_named(const std::string& name) {
  for (const Isa isa : attend::kernels::cpu::available_isas())
    if (name == attend::kernels::cpu::to_string(isa)) return isa;
  attend::fail(attend::ErrorCode::kInvalidArgument, "instruction set ", name,
               ": this machine supports up to ", attend::kernels::cpu::detect_isa());
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  attend::set_num_threads(static_cast<int>(argument(1, 1)));
  Setup setup = {.num_outs = argument(2, 4096),
                 .in_features = argument(3, 4096),
                 .num_weights = argument(4, 8),
                 .elements = elements_named(argc > 5 ? argv[5] : "bfloat16"),
                 .isa = argc > 6 ? isa_named(argv[6]) : attend::kernels::cpu::detect_isa(),
                 .num_rows = {}};
  for (int i = 7; i < argc; ++i) setup.num_rows.push_back(std::atoll(argv[i]));
  if (setup.num_rows.empty()) setup.num_rows = {1, 2, 4, 8, 16, 32, 64, 128, 512};
  std::printf("%d threads, %s, %ld x %ld, %ld matrices in rotation\n", attend::num_threads(),
              std::string(attend::kernels::cpu::to_string(setup.isa)).c_str(),
              static_cast<long>(setup.num_outs), static_cast<long>(setup.in_features),
              static_cast<long>(setup.num_weights));
  time_linear(setup);
}
