// Code shared by operations with weights: checks, and dequantized elements.
#pragma once

#include <string_view>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/weight.h"

namespace attend::kernels {

// Checks a weight (tensor/weight.h) on the stream's device: shapes, dtypes and groups, but not values.
// num_orders: number of input orders, if it has any. Throws Error(kInvalidArgument).
void require_weight_on(const Stream& stream, std::string_view name, const Weight& weight,
                       int64_t num_orders = 1);

// Format and storage type of a weight's elements: "bfloat16", "int4 in groups of 128".
std::string describe_elements(const Weight& weight);

namespace reference {
// Dequantized elements of an output feature, in host memory, in the order of the inputs. Exact except for
// rounding of products to double.
std::vector<double> weight_row(const Weight& weight, int64_t out);
}  // namespace reference

}  // namespace attend::kernels
