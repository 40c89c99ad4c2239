// FlashAttention's descales: factors of K/V or queries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/kernels/norm_rope/rope.h"
#include "tensors/tensor_argument.h"

namespace attend::python {

// Factor for all requests and heads, or a float32 tensor: one element, or one per request and K/V head. A
// tensor in host memory with equal elements becomes a number; other tensors are not read by the host.
class Descale {
 public:
  // None means 1. Throws Error that names the argument.
  Descale(std::string_view name, nb::handle value);

  // Throws Error that names the argument unless the value is None, a number, one element or [num_reqs,
  // num_kv_heads]. A tensor with equal elements must have one of these shapes too.
  void require_shape(int64_t num_reqs, int64_t num_kv_heads) const;

  float number() const { return number_; }  // 1 if it is a tensor
  bool is_tensor() const { return tensor_.given(); }
  const std::string_view& name() const { return name_; }
  // Returns the scales for rows of num_kv_heads * heads_per_scale heads, after require_shape(). Throws Error
  // unless a tensor is on `device`.
  kernels::RowScale rows(int64_t heads_per_scale, Device device) const;

 private:
  std::string_view name_;
  float number_ = 1.0f;
  std::optional<TensorView> given_;  // the given tensor, used for its shape only
  TensorArgument tensor_;
};

}  // namespace attend::python
