// What operations over weights share: the checks, and elements as numbers.
#pragma once

#include <string_view>
#include <vector>

#include "attend/tensor/device.h"
#include "attend/tensor/weight.h"

namespace attend::kernels {

// A weight as tensor/weight.h has it, on the stream's device: shapes, dtypes and groups, not the numbers.
// num_orders: of its inputs, if they have any. Throws Error(kInvalidArgument).
void require_weight_of(const Stream& stream, std::string_view name, const Weight& weight,
                       int64_t num_orders = 1);

// The format, and what its elements are stored in: "bfloat16", "int4 in groups of 128".
std::string describe_elements(const Weight& weight);

namespace reference {
// The elements of an output feature, in host memory, in the order of the inputs. What they are by definition:
// exact but for products that a double rounds.
std::vector<double> weight_row(const Weight& weight, int64_t out);
}  // namespace reference

}  // namespace attend::kernels
