#include "attend/kernels/norm_rope/check_rows.h"

#include "attend/base/error.h"
#include "attend/kernels/common/check_view.h"

namespace attend::kernels {

void require_matrix(std::string_view name, const TensorView& view, int64_t num_rows, int64_t num_columns,
                    const Stream& stream) {
  require_shape(name, view, {num_rows, num_columns});
  require_activation_on(stream, name, view);
}

void require_norm_weight(const TensorView& weight, int64_t dim, const Stream& stream) {
  require_shape("weight", weight, {dim});
  require_weight("weight", weight);
  require_on(stream, "weight", weight);
}

void require_indices(const Stream& stream, std::string_view name, View<const int32_t> indices, int64_t count,
                     int64_t end, std::string_view rows) {
  require(indices.size() == static_cast<size_t>(count), name, ": ", indices.size(), " entries for ", count,
          " rows of out");
  if (stream.device.type != DeviceType::kCpu) return;
  for (size_t i = 0; i < indices.size(); ++i)
    require(indices[i] >= 0 && indices[i] < end, name, "[", i, "] = ", indices[i], ": ", rows, " has ", end,
            " rows");
}

}  // namespace attend::kernels
