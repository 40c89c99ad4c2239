// What K/V or queries are to be multiplied by: FlashAttention's descales.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attend/kernels/norm_rope/rope.h"
#include "tensor_argument.h"

namespace attend::python {

// A number for all requests and heads, or float32 numbers in a tensor: one, or one for each request and K/V
// head. A tensor in host memory whose elements are equal is a number; others are not read by the host.
class Descale {
 public:
  // None is 1. Throws Error naming the argument.
  Descale(std::string_view name, nb::handle value);

  // Throws Error naming the argument unless what was given is None, a number, one element or
  // [num_reqs, num_kv_heads]: equal elements are a number, but not of any shape.
  void require_shape(int64_t num_reqs, int64_t num_kv_heads) const;

  float number() const { return number_; }  // 1 where there is a tensor
  bool is_tensor() const { return tensor_.given(); }
  const std::string_view& name() const { return name_; }
  // For rows of num_kv_heads * heads_each heads; the tensor's shape was required. Throws Error unless it lies
  // on `device`.
  kernels::RowScale rows(int64_t heads_each, Device device) const;

 private:
  std::string_view name_;
  float number_ = 1.0f;
  std::optional<TensorView> given_;  // the tensor that was given, for its shape alone
  TensorArgument tensor_;
};

}  // namespace attend::python
