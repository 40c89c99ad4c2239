// Checks shared by the entries of this family.
#pragma once

#include <string_view>

#include "attend/kernels/common/check_view.h"

namespace attend::kernels {

// Requires an activation of this shape.
void require_matrix(std::string_view name, const TensorView& view, int64_t num_rows, int64_t num_columns,
                    const Stream& stream);
void require_norm_weight(const TensorView& weight, int64_t dim, const Stream& stream);
// Requires `count` indices. Indices in host memory, which are short compared to the rows that they select,
// are checked: each must be below `end`, the number of rows of `rows`.
void require_indices(const Stream& stream, std::string_view name, View<const int32_t> indices, int64_t count,
                     int64_t end, std::string_view rows);

}  // namespace attend::kernels
