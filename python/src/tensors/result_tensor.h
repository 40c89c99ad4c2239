// Tensors that attend returns, created by the library of the queries and, if possible, with its allocator.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "attend/tensor/tensor.h"
#include "call_in_flight.h"
#include "tensors/dlpack_exchange.h"

namespace attend::python {

namespace nb = nanobind;

// DLPack tensor that was not imported yet.
struct DeletesDlpack {
  void operator()(dlpack::DLManagedTensorVersioned* managed) const { managed->deleter(managed); }
};
using OwnedDlpack = std::unique_ptr<dlpack::DLManagedTensorVersioned, DeletesDlpack>;

// Tensor that is written and then returned to Python. Torch tensors come from torch's allocator, so they are
// valid in its CUDA graphs; numpy arrays are numpy's. For other libraries (CPU only), attend allocates memory
// that the library imports.
class ResultTensor {
 public:
  ResultTensor() = default;
  // Has the library, device and dtype of `like`, with view `view`; float32_like() has dtype float32.
  static ResultTensor like(nb::handle like, const TensorView& view, std::span<const int64_t> shape);
  static ResultTensor float32_like(nb::handle like, const TensorView& view, std::span<const int64_t> shape);

  // Returns like(), and float32_like() with another shape. With torch both share one allocation, which saves
  // host time; it is freed with the last of them.
  static std::pair<ResultTensor, ResultTensor> like_and_float32(nb::handle like, const TensorView& view,
                                                                std::span<const int64_t> shape,
                                                                std::span<const int64_t> float32_shape);

  const TensorView& view() const { return view_; }
  // Returns the Python object. Called once, after the tensor is written.
  nb::object take();

 private:
  static ResultTensor taken(const DlpackExchange& exchange, OwnedDlpack managed);
  static ResultTensor make(nb::handle like, Device device, DType dtype, std::span<const int64_t> shape,
                           nb::handle numpy_dtype);
  // Returns an uninitialized copy of `like`, or no value if its library has no fast function for it.
  static std::optional<ResultTensor> quickly_made(nb::handle like, const TensorView& view,
                                                  std::span<const int64_t> shape);

  TensorView view_;
  nb::object object_;              // of numpy or torch
  std::optional<Tensor> storage_;  // for other libraries
  nb::object namespace_;           // has from_dlpack
};

// LSE of requests with equal lengths: interfaces return [num_reqs, num_q_heads, seqlen_q], kernels write it
// token by token.
class DenseLse {
 public:
  // Has the library and device of `like`, with view `view`.
  DenseLse(nb::handle like, const TensorView& view, int64_t num_reqs, int64_t seqlen_q, int64_t num_q_heads);
  // Uses a float32 tensor with dense_shape().
  DenseLse(ResultTensor made, int64_t seqlen_q);
  static std::array<int64_t, 3> dense_shape(int64_t num_reqs, int64_t seqlen_q, int64_t num_q_heads);

  const TensorView& tokens() const { return tokens_; }  // [num_reqs * seqlen_q, num_q_heads]
  // Returns the Python object. Called once, after the tensor is written.
  nb::object take();

 private:
  ResultTensor result_;
  TensorView tokens_;
  bool heads_are_last_ = false;
};

// Object with Python's DLPack protocol, from which libraries import a Tensor. CPU only.
struct ExportedTensor {
  Tensor tensor;
};
void bind_exported_tensor(Module& module);

}  // namespace attend::python
