// Rows of elements, read and written in groups of eight by small kernels.
#pragma once

#include "attend/kernels/common/cuda/element_group.cuh"
#include "attend/kernels/common/cuda/params.h"

namespace attend::kernels::cuda {

using Group = float[kGroupElements];

__host__ __device__ inline int num_element_groups(int num_columns) {
  return (num_columns + kGroupElements - 1) / kGroupElements;
}

// Avoids the division for most rows: it takes as long as a group's arithmetic, and in 64 bits several times
// as long. There are less than 2^31 rows.
__device__ inline int64_t row_begin(const DeviceRows& rows, int64_t row) {
  if (rows.inner == 1) return row * rows.outer_stride;
  const auto number = static_cast<uint32_t>(row), inner = static_cast<uint32_t>(rows.inner);
  return number / inner * rows.outer_stride + number % inner * rows.inner_stride;
}

// A row of T in whole groups that start at multiples of 16 bytes. A group keeps its raw bits until its values
// are used, so that a thread can have several loads in flight.
template <class T>
class AlignedRow {
 public:
  using Bits = uint4;

  __device__ AlignedRow(const DeviceRows& rows, int64_t row, int /*num_columns*/, bool /*aligned*/)
      : data_(static_cast<T*>(rows.data) + row_begin(rows, row)) {}

  __device__ Bits load(int g) const { return *reinterpret_cast<const Bits*>(data_ + g * kGroupElements); }
  static __device__ void convert(const Bits& bits, Group& group) { convert_16_bit_group<T>(bits, group); }
  __device__ float rounded(float value) const { return static_cast<float>(T(value)); }
  __device__ void store(int g, const Group& group) const {
    store_16_bit_group(data_ + g * kGroupElements, group);
  }

 private:
  T* data_;
};

// Like AlignedRow, for float32 that is only read: weights of a norm.
class AlignedF32Row {
 public:
  struct Bits {
    float4 low, high;
  };

  __device__ AlignedF32Row(const DeviceRows& rows, int64_t row, int /*num_columns*/, bool /*aligned*/)
      : data_(static_cast<const float4*>(rows.data) + row_begin(rows, row) / 4) {}

  __device__ Bits load(int g) const { return {data_[2 * g], data_[2 * g + 1]}; }
  static __device__ void convert(const Bits& bits, Group& group) {
    const float values[kGroupElements] = {bits.low.x,  bits.low.y,  bits.low.z,  bits.low.w,
                                          bits.high.x, bits.high.y, bits.high.z, bits.high.w};
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] = values[i];
  }

 private:
  const float4* data_;
};

// A row of any element type except fp8.
class UnalignedRow {
 public:
  struct Bits {
    Group values;
  };

  __device__ UnalignedRow(const DeviceRows& rows, int64_t row, int num_columns, bool aligned)
      : data_(rows.data),
        begin_(row_begin(rows, row)),
        num_columns_(num_columns),
        element_(rows.element),
        aligned_(aligned) {}

  __device__ Bits load(int g) const {
    const int first = g * kGroupElements;
    Bits bits;
    if (aligned_)
      load_group(data_, begin_ + first, element_, bits.values);
    else
      load_some(data_, begin_ + first, element_, num_columns_ - first, bits.values);
    return bits;
  }
  static __device__ void convert(const Bits& bits, Group& group) {
#pragma unroll
    for (int i = 0; i < kGroupElements; ++i) group[i] = bits.values[i];
  }
  __device__ float rounded(float value) const { return cuda::rounded(value, element_); }
  __device__ void store(int g, const Group& group) const {
    const int first = g * kGroupElements;
    if (aligned_)
      store_group(data_, begin_ + first, element_, group);
    else
      store_some(data_, begin_ + first, element_, num_columns_ - first, group);
  }

 private:
  void* data_;
  int64_t begin_;
  int num_columns_;
  Element element_;
  bool aligned_;
};

}  // namespace attend::kernels::cuda
