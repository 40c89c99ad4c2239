#include "attend/kernels/common/cuda/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include <array>

#include "attend/base/error.h"
#include "attend/tensor/cuda_check.h"

namespace attend::kernels::cuda::sm90 {
namespace {

constexpr cuuint64_t kElementBytes = 2;  // 16-bit matrices
constexpr cuuint32_t kBoxBytes = 128, kBoxColumns = kBoxBytes / kElementBytes;
// L2 promotion: a row of a box. With 256 bytes, kernels that are bound by memory take 4 to 5 % longer.
constexpr CUtensorMapL2promotion kFetch = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
constexpr cuuint32_t kPartnerRows = 8;

using Encode = decltype(&cuTensorMapEncodeTiled);

// Loaded on first use: a build with CUDA starts on machines without a driver.
Encode find_encode() {
  constexpr unsigned kVersion = 12000;  // first version of CUDA with this function
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  attend::cuda::check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                                       cudaEnableDefault, &result),
                      "cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess)
    fail(ErrorCode::kDevice,
         "cuTensorMapEncodeTiled: not found in this driver; expected one for CUDA 12.0 or later");
  return reinterpret_cast<Encode>(function);
}

// Any fp8 type is copied as bytes.
CUtensorMapDataType to_tensor_map_dtype(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  }
}

// Dimensions are innermost first; strides[i] is the stride of dimension i + 1.
template <size_t kRank>
CUtensorMap encode(const TensorView& matrix, std::array<cuuint64_t, kRank> sizes,
                   std::array<cuuint64_t, kRank - 1> strides_bytes, std::array<cuuint32_t, kRank> box) {
  static const Encode encode_tiled = find_encode();
  std::array<cuuint32_t, kRank> steps;
  steps.fill(1);
  CUtensorMap map{};
  const CUresult status =
      encode_tiled(&map, to_tensor_map_dtype(matrix.dtype), kRank, matrix.data, sizes.data(),
                   strides_bytes.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, kFetch, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail(ErrorCode::kDevice, "tensor map of ", matrix, ": CUDA driver error ", static_cast<int>(status));
  return map;
}

// Boxes of 128 bytes of rows of 16-bit or one-byte elements. `box`: sizes of the other dimensions, innermost
// first.
template <size_t kRank>
CUtensorMap encode_rows(const TensorView& rows, std::array<int, kRank - 1> box) {
  const auto element_bytes = static_cast<cuuint64_t>(size_of(rows.dtype));
  const auto box_columns = static_cast<cuuint32_t>(kBoxBytes / element_bytes);
  std::array<cuuint64_t, kRank> sizes{};
  std::array<cuuint64_t, kRank - 1> strides{};
  std::array<cuuint32_t, kRank> box_sizes{box_columns};
  for (size_t i = 0; i < kRank; ++i) sizes[i] = static_cast<cuuint64_t>(rows.shape[kRank - 1 - i]);
  for (size_t i = 0; i < kRank - 1; ++i) {
    const size_t dim = kRank - 2 - i;
    // A dimension of size 1 may have any stride.
    strides[i] =
        element_bytes * static_cast<cuuint64_t>(rows.shape[dim] > 1 ? rows.strides[dim] : box_columns);
    box_sizes[i + 1] = static_cast<cuuint32_t>(box[i]);
  }
  return encode<kRank>(rows, sizes, strides, box_sizes);
}

}  // namespace

bool has_tensor_map(const TensorView& view) {
  for (size_t dim = 0; dim + 1 < static_cast<size_t>(view.rank); ++dim)
    if (view.shape[dim] == 0 || (view.shape[dim] > 1 && view.strides[dim] <= 0)) return false;
  return true;
}

CUtensorMap map_rows(const TensorView& matrix, int box_rows) { return encode_rows<2>(matrix, {box_rows}); }

CUtensorMap map_row_pairs(const TensorView& weight, bool gated, int box_pairs) {
  const auto num_rows = static_cast<cuuint64_t>(weight.shape[0]);
  const auto num_columns = static_cast<cuuint64_t>(weight.shape[1]);
  const cuuint64_t row_bytes = kElementBytes * num_columns;
  const cuuint64_t to_partner = gated ? num_rows / 2 : kPartnerRows;
  const cuuint64_t to_pair = gated ? kPartnerRows : 2 * kPartnerRows;
  return encode<4>(weight, {num_columns, kPartnerRows, 2, num_rows / (2 * kPartnerRows)},
                   {row_bytes, to_partner * row_bytes, to_pair * row_bytes},
                   {kBoxColumns, kPartnerRows, 2, static_cast<cuuint32_t>(box_pairs)});
}

CUtensorMap map_pages(const TensorView& pages, int box_slots, int box_pages) {
  return encode_rows<4>(pages, {1, box_slots, box_pages});
}

CUtensorMap map_tokens(const TensorView& tokens, int box_heads, int box_tokens) {
  return encode_rows<3>(tokens, {box_heads, box_tokens});
}

}  // namespace attend::kernels::cuda::sm90
