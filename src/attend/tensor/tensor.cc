#include "attend/tensor/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "attend/tensor/cuda.h"

namespace attend {

TensorView TensorView::contiguous(void* data, DType dtype, std::span<const int64_t> shape, Device device) {
  require(shape.size() <= kMaxRank, "tensor rank ", shape.size(), ": at most ", kMaxRank);
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  int64_t stride = 1;
  auto stride_bytes = static_cast<int64_t>(size_of(dtype));
  for (size_t i = shape.size(); i-- > 0;) {
    require(shape[i] >= 0, "tensor ", view, ": negative extent");
    require(!__builtin_mul_overflow(stride_bytes, shape[i], &stride_bytes), "tensor ", view,
            ": more bytes than an int64 counts");
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

int64_t TensorView::num_elements() const {
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[static_cast<size_t>(i)];
  return count;
}

bool TensorView::is_contiguous() const {
  if (num_elements() == 0) return true;
  int64_t stride = 1;
  for (size_t i = static_cast<size_t>(rank); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != stride) return false;
    stride *= shape[i];
  }
  return true;
}

TensorView TensorView::operator[](int64_t i) const {
  ensure(rank > 0 && i >= 0 && i < shape[0], "index ", i, " of ", *this);
  TensorView sub = *this;
  sub.data = static_cast<char*>(data) + i * strides[0] * static_cast<int64_t>(size_of(dtype));
  sub.rank = rank - 1;
  std::copy(shape.begin() + 1, shape.end(), sub.shape.begin());
  std::copy(strides.begin() + 1, strides.end(), sub.strides.begin());
  return sub;
}

TensorView TensorView::slice(int dim, int64_t begin, int64_t end) const {
  const auto d = static_cast<size_t>(dim);
  ensure(dim >= 0 && dim < rank && begin >= 0 && begin <= end && end <= shape[d], "slice ", begin, ":", end,
         " of dimension ", dim, " of ", *this);
  TensorView sub = *this;
  sub.data = static_cast<char*>(data) + begin * strides[d] * static_cast<int64_t>(size_of(dtype));
  sub.shape[d] = end - begin;
  return sub;
}

TensorView TensorView::reshape(std::initializer_list<int64_t> new_shape) const {
  ensure(is_contiguous(), "reshape of a strided tensor ", *this);
  TensorView view =
      contiguous(data, dtype, std::span<const int64_t>(new_shape.begin(), new_shape.size()), device);
  ensure(view.num_elements() == num_elements(), "reshape of ", *this, " to ", view);
  return view;
}

TensorView TensorView::split(int dim, int64_t inner) const {
  const auto d = static_cast<size_t>(dim);
  ensure(dim >= 0 && dim < rank && rank < kMaxRank && inner > 0 && shape[d] % inner == 0,
         "split of dimension ", dim, " of ", *this, " by ", inner);
  TensorView view = *this;
  view.rank = rank + 1;
  for (size_t i = static_cast<size_t>(rank); i > d + 1; --i) {
    view.shape[i] = shape[i - 1];
    view.strides[i] = strides[i - 1];
  }
  view.shape[d] = shape[d] / inner;
  view.strides[d] = strides[d] * inner;
  view.shape[d + 1] = inner;
  view.strides[d + 1] = strides[d];
  return view;
}

TensorView TensorView::transpose(int a, int b) const {
  ensure(a >= 0 && a < rank && b >= 0 && b < rank, "transpose of dimensions ", a, " and ", b, " of ", *this);
  TensorView view = *this;
  std::swap(view.shape[static_cast<size_t>(a)], view.shape[static_cast<size_t>(b)]);
  std::swap(view.strides[static_cast<size_t>(a)], view.strides[static_cast<size_t>(b)]);
  return view;
}

std::string TensorView::to_string() const {
  std::ostringstream out;
  out << dtype << '[';
  for (int i = 0; i < rank; ++i) out << (i ? ", " : "") << shape[static_cast<size_t>(i)];
  out << "] on " << device;
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const TensorView& view) { return out << view.to_string(); }

Tensor Tensor::empty(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  if (device.type == DeviceType::kCuda) return cuda::empty(shape, dtype, device);
  TensorView view = TensorView::contiguous(nullptr, dtype, shape);
  // Complete cache lines, and at least one, so that a tensor without elements has an address.
  const size_t bytes = std::max<size_t>((view.num_bytes() + 63) / 64 * 64, 64);
  void* memory = std::aligned_alloc(64, bytes);
  if (memory == nullptr) fail(ErrorCode::kOutOfMemory, "tensor ", view, ": ", bytes, " bytes");
  view.data = memory;
  return Tensor(view, std::shared_ptr<void>(memory, std::free));
}

Tensor Tensor::zeros(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  if (device.type == DeviceType::kCuda) return cuda::zeros(shape, dtype, device);
  Tensor made = empty(shape, dtype);
  std::memset(made.view().data, 0, made.view().num_bytes());
  return made;
}

}  // namespace attend
