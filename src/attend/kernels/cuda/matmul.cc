#include "attend/kernels/cuda/matmul.h"

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <mutex>

#include "attend/base/error.h"
#include "attend/kernels/cuda/cublaslt.h"
#include "attend/tensor/cuda.h"

namespace attend::kernels::cuda {
namespace {

// What NVIDIA recommends for Hopper.
constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr uint32_t kMaxAlignment = 256;

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// The largest power of two that divides the address, as far as cuBLASLt cares.
uint32_t alignment_of(const TensorView& view) {
  const auto address = reinterpret_cast<uintptr_t>(view.data) | kMaxAlignment;
  return static_cast<uint32_t>(address & -address);
}

// All that a choice of algorithm depends on.
struct ProductShape {
  int64_t num_rows, in_features, out_features, x_stride, out_stride;
  DType dtype, out_dtype;
  uint32_t x_alignment, weight_alignment, out_alignment;
  auto operator<=>(const ProductShape&) const = default;

  static ProductShape of(const TensorView& x, const TensorView& weight, const TensorView& out) {
    return {.num_rows = x.shape[0],
            .in_features = x.shape[1],
            .out_features = weight.shape[0],
            // A single row may have any stride.
            .x_stride = std::max(x.strides[0], x.shape[1]),
            .out_stride = std::max(out.strides[0], weight.shape[0]),
            .dtype = x.dtype,
            .out_dtype = out.dtype,
            .x_alignment = alignment_of(x),
            .weight_alignment = alignment_of(weight),
            .out_alignment = alignment_of(out)};
  }
};

// A shape's descriptors and algorithm. They live as long as the process, like the device's other state.
struct Product {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t weight, x, out;
  cublasLtMatmulAlgo_t algorithm;
};

// cuBLASLt counts columns first: a row-major [rows, columns] matrix is its [columns, rows].
cublasLtMatrixLayout_t make_layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublaslt().layout_create(&layout, cublas_type(dtype), static_cast<uint64_t>(columns),
                                 static_cast<uint64_t>(rows), stride),
        "matrix layout");
  return layout;
}

cublasLtMatmulAlgo_t choose_algorithm(cublasLtHandle_t handle, const ProductShape& shape,
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
  cublasLtMatmulHeuristicResult_t result{};
  int num_found = 0;
  const cublasStatus_t status = lt.heuristic(handle, product.desc, product.weight, product.x, product.out,
                                             product.out, preference, 1, &result, &num_found);
  lt.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || num_found == 0)
    fail(ErrorCode::kUnsupported, "linear of ", shape.num_rows, " rows, ", shape.in_features, " to ",
         shape.out_features, " features of ", shape.dtype, ": cuBLASLt has no algorithm (",
         lt.status_string(status), ")");
  return result.algo;
}

// cuBLASLt on one device.
class DeviceMatmul {
 public:
  explicit DeviceMatmul(Device device) : device_(device) { check(cublaslt().create(&handle_), "cuBLASLt"); }

  void run(const TensorView& x, const TensorView& weight, const TensorView& out, bool accumulate,
           Stream& stream) {
    const std::lock_guard lock(mutex_);
    const Product& product = product_of(ProductShape::of(x, weight, out));
    const Tensor& workspace = workspace_of(stream);
    const float one = 1.0f, beta = accumulate ? 1.0f : 0.0f;
    check(cublaslt().matmul(handle_, product.desc, &one, weight.data, product.weight, x.data, product.x,
                            &beta, out.data, product.out, out.data, product.out, &product.algorithm,
                            workspace.view().data, kWorkspaceBytes, static_cast<cudaStream_t>(stream.handle)),
          "linear");
  }

 private:
  const Product& product_of(const ProductShape& shape) {
    const auto [found, added] = products_.try_emplace(shape);
    if (added) {
      try {
        found->second = make_product(shape);
      } catch (...) {
        products_.erase(found);
        throw;
      }
    }
    return found->second;
  }

  Product make_product(const ProductShape& shape) {
    const CublasLt& lt = cublaslt();
    Product product{};
    check(lt.desc_create(&product.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "matmul description");
    const cublasOperation_t transpose = CUBLAS_OP_T;
    check(lt.desc_set(product.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
          "matmul description");
    product.weight = make_layout(shape.dtype, shape.out_features, shape.in_features, shape.in_features);
    product.x = make_layout(shape.dtype, shape.num_rows, shape.in_features, shape.x_stride);
    product.out = make_layout(shape.out_dtype, shape.num_rows, shape.out_features, shape.out_stride);
    product.algorithm = choose_algorithm(handle_, shape, product);
    return product;
  }

  // Products on different streams may run at once, so each stream has its own.
  const Tensor& workspace_of(const Stream& stream) {
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

// The state of each device, made when it is first used and never taken down: the driver may be gone by the
// time that static objects are.
DeviceMatmul& matmul_of(Device device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<DeviceMatmul>>;
  const std::lock_guard lock(mutex);
  auto& found = devices[device.index];
  if (found == nullptr) found = std::make_unique<DeviceMatmul>(device);
  return *found;
}

}  // namespace

void matmul(const TensorView& x, const TensorView& weight, const TensorView& out, bool accumulate,
            Stream& stream) {
  const attend::cuda::DeviceScope scope(stream.device);
  matmul_of(stream.device).run(x, weight, out, accumulate, stream);
}

}  // namespace attend::kernels::cuda
