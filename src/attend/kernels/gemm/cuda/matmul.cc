#include "attend/kernels/gemm/cuda/matmul.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "attend/base/error.h"
#include "attend/kernels/gemm/cuda/cublaslt.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

// First version that supports scales per row and per output.
constexpr size_t kScalesRows = 120900;
// NVIDIA's recommendation for Hopper.
constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr uint32_t kMaxAlignment = 256;
// Products of decode steps are bound by memory, and their graphs are recorded for multiples of 8 rows. Their
// algorithms are timed, since cuBLASLt's first recommendation is not always the fastest.
constexpr int64_t kMaxTriedRows = 256, kTriedRowsStep = 8;
constexpr int kMaxTried = 8;
constexpr int kTrials = 3;
// Bytes written between timed runs, more than any L2 cache, so that weights are read from memory like in a
// step.
constexpr int64_t kFlushBytes = 128 << 20;

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

// Largest power of two that divides the address, up to the alignment that cuBLASLt distinguishes.
uint32_t pointer_alignment(const TensorView& view) {
  const auto address = reinterpret_cast<uintptr_t>(view.data) | kMaxAlignment;
  return static_cast<uint32_t>(address & -address);
}

// Key of the algorithm cache.
struct ProductShape {
  int64_t num_rows, in_features, out_features, x_stride, out_stride;
  DType dtype, out_dtype;
  uint32_t x_alignment, weight_alignment, out_alignment;
  bool has_bias;
  auto operator<=>(const ProductShape&) const = default;

  static ProductShape make(const TensorView& x, const TensorView& weight, const TensorView& out,
                           bool has_bias) {
    return {.num_rows = x.shape[0],
            .in_features = x.shape[1],
            .out_features = weight.shape[0],
            // A single row may have any stride.
            .x_stride = std::max(x.strides[0], x.shape[1]),
            .out_stride = std::max(out.strides[0], weight.shape[0]),
            .dtype = x.dtype,
            .out_dtype = out.dtype,
            .x_alignment = pointer_alignment(x),
            .weight_alignment = pointer_alignment(weight),
            .out_alignment = pointer_alignment(out),
            .has_bias = has_bias};
  }
};

// Descriptors and algorithm of a shape. They are never destroyed, like other device state.
struct Product {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t weight, x, out;
  cublasLtMatmulAlgo_t algorithm;
};

// cuBLASLt is column-major: a row-major [rows, columns] matrix is its [columns, rows].
cublasLtMatrixLayout_t make_layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublaslt().layout_create(&layout, cublas_type(dtype), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), stride),
        "matrix layout");
  return layout;
}

// Returns the algorithms that cuBLASLt recommends, best first, at most kMaxTried.
std::vector<cublasLtMatmulAlgo_t> find_algorithms(cublasLtHandle_t handle, const ProductShape& shape,
                                                  const Product& product) {
  const CublasLt& lt = cublaslt();
  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.preference_create(&preference), "matmul preference");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(lt.preference_set(preference, attribute, &value, sizeof(value)), "matmul preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t results[kMaxTried]{};
  int num_found = 0;
  const cublasStatus_t status = lt.heuristic(handle, product.desc, product.weight, product.x, product.out,
                                             product.out, preference, kMaxTried, results, &num_found);
  lt.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || num_found == 0)
    fail(ErrorCode::kUnsupported, "linear of ", shape.num_rows, " rows, ", shape.in_features, " to ",
         shape.out_features, " features of ", shape.dtype, ": cuBLASLt has no algorithm (",
         lt.status_string(status), ")");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < num_found; ++i) algorithms.push_back(results[i].algo);
  return algorithms;
}

// cuBLASLt on one device.
class DeviceMatmul {
 public:
  explicit DeviceMatmul(Device device) : device_(device) { check(cublaslt().create(&handle_), "cuBLASLt"); }

  struct Operands {
    const TensorView &x, &weight, &out;
    // Row scales of fp8 operands.
    const float *x_scales = nullptr, *weight_scales = nullptr;
    const void* bias = nullptr;  // of the dtype of out
  };
  void run(const Operands& operands, bool accumulate, Stream& stream) {
    const std::lock_guard lock(mutex_);
    const Product& product =
        find_product(ProductShape::make(operands.x, operands.weight, operands.out, operands.bias != nullptr),
                     operands, stream);
    launch(product, product.algorithm, operands, accumulate, stream);
  }

 private:
  void launch(const Product& product, const cublasLtMatmulAlgo_t& algorithm, const Operands& operands,
              bool accumulate, Stream& stream) {
    const Tensor& workspace = stream_workspace(stream);
    const float one = 1.0f, beta = accumulate ? 1.0f : 0.0f;
    if (operands.x_scales != nullptr) set_scales(product, operands);
    if (operands.bias != nullptr) set_bias(product, operands.bias);
    void* const out = operands.out.data;
    check(cublaslt().matmul(handle_, product.desc, &one, operands.weight.data, product.weight,
                            operands.x.data, product.x, &beta, out, product.out, out, product.out, &algorithm,
                            workspace.view().data, kWorkspaceBytes, static_cast<cudaStream_t>(stream.handle)),
          "linear");
  }

  // Sets the bias of this call, as set_scales() does for scales.
  static void set_bias(const Product& product, const void* bias) {
    check(cublaslt().desc_set(product.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
          "matmul bias");
  }

  // Sets the scale pointers of this call: the descriptor is cached, and a call reads the pointers set last.
  static void set_scales([[maybe_unused]] const Product& product, [[maybe_unused]] const Operands& operands) {
#if CUBLAS_VERSION >= 120900
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      check(cublaslt().desc_set(product.desc, attribute, &value, sizeof(value)), "matmul scales");
    };
    constexpr auto kRowScaleMode = static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kRowScaleMode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kRowScaleMode);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.weight_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.x_scales);
    // Without fast accumulation, sums leave the tensor cores repeatedly, which costs more than rounding x to
    // fp8 saves.
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
#endif
  }

  const Product& find_product(const ProductShape& shape, const Operands& operands, Stream& stream) {
    const auto [found, added] = products_.try_emplace(shape);
    if (added) {
      try {
        found->second = make_product(shape, operands, stream);
      } catch (...) {
        products_.erase(found);
        throw;
      }
    }
    return found->second;
  }

  Product make_product(const ProductShape& shape, const Operands& operands, Stream& stream) {
    const CublasLt& lt = cublaslt();
    Product product{};
    check(lt.desc_create(&product.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul description");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check(lt.desc_set(product.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
          "matmul description");
    product.weight = make_layout(shape.dtype, shape.out_features, shape.in_features, shape.in_features);
    product.x = make_layout(shape.dtype, shape.num_rows, shape.in_features, shape.x_stride);
    product.out = make_layout(shape.out_dtype, shape.num_rows, shape.out_features, shape.out_stride);
    if (operands.x_scales != nullptr) set_scales(product, operands);
    if (operands.bias != nullptr) {
      // A column of the column-major result has one element per output feature, as the bias.
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      check(lt.desc_set(product.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)),
            "matmul bias");
      set_bias(product, operands.bias);
    }
    const std::vector<cublasLtMatmulAlgo_t> algorithms = find_algorithms(handle_, shape, product);
    product.algorithm = algorithms.front();
    const bool worth_trying = shape.num_rows <= kMaxTriedRows && shape.num_rows % kTriedRowsStep == 0 &&
                              shape.dtype != DType::kF32 && algorithms.size() > 1;
    if (!worth_trying || attend::cuda::is_capturing(stream)) return product;
    try {
      product.algorithm = fastest(product, algorithms, operands, stream);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
    }
    return product;
  }

  // Returns the algorithm with the fastest of a few runs, or the first one if memory for the trial is not
  // available. Runs on a separate stream after the caller's stream is idle, with the caller's weight, and
  // zeros as x and out.
  cublasLtMatmulAlgo_t fastest(const Product& product, const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                               const Operands& operands, const Stream& caller) {
    attend::cuda::synchronize(caller);
    attend::cuda::OwnedStream stream(device_);
    const auto rows_like = [&](const TensorView& view) {
      const int64_t stride = std::max(view.strides[0], view.shape[1]);
      Tensor made = attend::cuda::zeros({view.shape[0] * stride}, view.dtype, device_);
      TensorView rows = view;
      rows.data = made.view().data;
      return std::pair{std::move(made), rows};
    };
    const auto [x_memory, x] = rows_like(operands.x);
    const auto [out_memory, out] = rows_like(operands.out);
    const Tensor flush = attend::cuda::zeros({kFlushBytes}, DType::kU8, device_);
    attend::cuda::Event start(device_), stop(device_);
    size_t best = 0;
    float best_milliseconds = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < algorithms.size(); ++i)
      for (int trial = 0; trial < kTrials; ++trial) {
        attend::cuda::copy(flush.view().slice(0, 0, kFlushBytes / 2),
                           flush.view().slice(0, kFlushBytes / 2, kFlushBytes), stream.get());
        start.record(stream.get());
        launch(product, algorithms[i],
               {x, operands.weight, out, operands.x_scales, operands.weight_scales, operands.bias},
               /*accumulate=*/false, stream.get());
        stop.record(stream.get());
        stop.synchronize();
        const float milliseconds = stop.milliseconds_since(start);
        if (milliseconds < best_milliseconds) best = i;
        best_milliseconds = std::min(best_milliseconds, milliseconds);
      }
    workspaces_.erase(stream.get().handle);
    return algorithms[best];
  }

  // Products on different streams may run concurrently, so each stream has its own workspace.
  const Tensor& stream_workspace(const Stream& stream) {
    const auto [found, added] = workspaces_.try_emplace(stream.handle);
    if (added) found->second = attend::cuda::empty({kWorkspaceBytes}, DType::kU8, device_);
    return found->second;
  }

  Device device_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<ProductShape, Product> products_;
  std::map<void*, Tensor> workspaces_;
};

// Returns the state of a device, created on first use and never destroyed: the driver may be unloaded before
// static objects are destroyed.
DeviceMatmul& device_matmul(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DeviceMatmul>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DeviceMatmul>(device);
  return *found;
}

}  // namespace

void matmul(const TensorView& x, const TensorView& weight, const TensorView& out, bool accumulate,
            Stream& stream, const TensorView& bias) {
  ensure(bias.empty() || adds_bias(bias, out), "matmul: bias ", bias, " for out ", out);
  const attend::cuda::DeviceScope scope(stream.device);
  device_matmul(stream.device)
      .run({.x = x, .weight = weight, .out = out, .bias = bias.data}, accumulate, stream);
}

bool adds_bias(const TensorView& bias, const TensorView& out) {
  constexpr uint32_t kBiasAlignment = 16;
  return bias.dtype == out.dtype && pointer_alignment(bias) >= kBiasAlignment;
}

void matmul(const ScaledRows& x, const ScaledRows& weight, const TensorView& out, bool accumulate,
            Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  device_matmul(stream.device).run({x.codes, weight.codes, out, x.scales, weight.scales}, accumulate, stream);
}

bool has_scaled_matmul() {
  static const bool has = CUBLAS_VERSION >= kScalesRows && cublaslt().version() >= kScalesRows;
  return has;
}

}  // namespace attend::kernels::cuda
