// Tensors that attend returns: of the library, and where there is a choice in the memory, that the queries
// came from.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "attend/tensor/tensor.h"
#include "dlpack_exchange.h"

namespace attend::python {

namespace nb = nanobind;

// A tensor of DLPack's that nobody has taken over yet.
struct DeletesDlpack {
  void operator()(dlpack::DLManagedTensorVersioned* managed) const { managed->deleter(managed); }
};
using OwnedDlpack = std::unique_ptr<dlpack::DLManagedTensorVersioned, DeletesDlpack>;

// A tensor to be written and then handed to Python. torch's come from torch's own allocator, so they are
// valid in its CUDA graphs; numpy's are numpy's; those of other libraries (CPU only) are attend's, imported
// by the library.
class ResultTensor {
 public:
  ResultTensor() = default;
  // Of the library, device and dtype of `like`, whose view is `view`; or of float32.
  static ResultTensor like(nb::handle like, const TensorView& view, std::span<const int64_t> shape);
  static ResultTensor float32_like(nb::handle like, const TensorView& view, std::span<const int64_t> shape);

  // like(), and float32_like() of another shape. Of torch they are one allocation, which saves the host that
  // of the other one; its memory is free when both are gone.
  static std::pair<ResultTensor, ResultTensor> like_and_float32(nb::handle like, const TensorView& view,
                                                                std::span<const int64_t> shape,
                                                                std::span<const int64_t> float32_shape);

  const TensorView& view() const { return view_; }
  // The Python object; once, after the tensor is written.
  nb::object take();

 private:
  static ResultTensor taken(const DlpackExchange& exchange, OwnedDlpack managed);
  static ResultTensor make(nb::handle like, Device device, DType dtype, std::span<const int64_t> shape,
                           nb::handle numpy_dtype);
  // Like `like` in everything but what it holds, or nothing where its library has no quick way to say so.
  static std::optional<ResultTensor> quickly_made(nb::handle like, const TensorView& view,
                                                  std::span<const int64_t> shape);

  TensorView view_;
  nb::object object_;              // numpy's or torch's
  std::optional<Tensor> storage_;  // of other libraries
  nb::object namespace_;           // has from_dlpack
};

// The LSE of requests of one length, which interfaces want as [num_reqs, num_q_heads, seqlen_q] and kernels
// write token by token.
class DenseLse {
 public:
  // Of the library and device of `like`, whose view is `view`.
  DenseLse(nb::handle like, const TensorView& view, int64_t num_reqs, int64_t seqlen_q, int64_t num_q_heads);
  // Of a float32 tensor of shape_of().
  DenseLse(ResultTensor made, int64_t seqlen_q);
  static std::array<int64_t, 3> shape_of(int64_t num_reqs, int64_t seqlen_q, int64_t num_q_heads);

  const TensorView& tokens() const { return tokens_; }  // [num_reqs * seqlen_q, num_q_heads]
  // The Python object; once, after the tensor is written.
  nb::object take();

 private:
  ResultTensor result_;
  TensorView tokens_;
  bool heads_are_last_ = false;
};

// What libraries import a Tensor by: the DLPack protocol of Python. CPU only.
struct ExportedTensor {
  Tensor tensor;
};
void bind_exported_tensor(nb::module_& module);

}  // namespace attend::python
