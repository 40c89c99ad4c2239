// Tensors: TensorView (pointer, dtype, shape, strides, device), and Tensor, which shares its storage.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "attend/base/error.h"
#include "attend/tensor/device.h"
#include "attend/tensor/dtype.h"

#pragma GCC visibility push(default)
namespace attend {

// Contiguous elements that are owned elsewhere.
template <class T>
using View = std::span<T>;

inline constexpr int kMaxRank = 5;

// Non-owning view. Strides are in elements; a stride may be 0 or larger than the next extent, so any layout
// can be viewed. Cheap to copy. An empty view (data null, rank 0) means "not given".
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Device device;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> strides{};

  // Returns a row-major contiguous view. Throws Error(kInvalidArgument) for a rank above kMaxRank, a negative
  // extent, or a size in bytes that does not fit an int64.
  static TensorView contiguous(void* data, DType dtype, std::span<const int64_t> shape, Device device = {});
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<int64_t> shape,
                               Device device = {}) {
    return contiguous(data, dtype, std::span<const int64_t>(shape.begin(), shape.size()), device);
  }

  bool empty() const { return data == nullptr; }
  int64_t num_elements() const;
  size_t num_bytes() const { return static_cast<size_t>(num_elements()) * size_of(dtype); }
  // Returns true if row-major without gaps. Extents of 1 may have any stride; a view without elements is
  // contiguous.
  bool is_contiguous() const;

  // operator[], slice, reshape, split and transpose throw Error(kInternal) for an index, dimension or size
  // that the view does not have.
  //
  // Returns the sub-view at index `i` of the first dimension; the rank decreases by one.
  TensorView operator[](int64_t i) const;
  // Returns elements [begin, end) of dimension `dim`.
  TensorView slice(int dim, int64_t begin, int64_t end) const;
  // Returns a view with another shape. Requires a contiguous view with the same number of elements.
  TensorView reshape(std::initializer_list<int64_t> new_shape) const;
  // Splits dimension `dim` into (shape[dim] / inner, inner). Supports any stride.
  TensorView split(int dim, int64_t inner) const;
  // Exchanges dimensions `a` and `b` without moving elements.
  TensorView transpose(int a, int b) const;

  // Returns the elements as T. Throws Error(kInternal) for another dtype.
  template <class T>
  T* as() const {
    ensure(dtype == dtype_of<std::remove_const_t<T>>, "tensor of ", dtype, " read as ",
           dtype_of<std::remove_const_t<T>>);
    return static_cast<T*>(data);
  }
  // Returns all elements of a contiguous view.
  template <class T>
  View<T> span() const {
    ensure(is_contiguous(), "span() of a strided tensor ", *this);
    return {as<T>(), static_cast<size_t>(num_elements())};
  }

  // Returns, for example, "float32[4, 8, 64] on cpu".
  std::string to_string() const;
};

std::ostream& operator<<(std::ostream& out, const TensorView& view);

// Storage with a view. Copies share the storage. Contiguous, 64-byte aligned.
class Tensor {
 public:
  Tensor() = default;
  // Creates a tensor on storage that `storage` keeps alive.
  Tensor(TensorView view, std::shared_ptr<void> storage) : view_(view), storage_(std::move(storage)) {}

  // Allocates memory of `device`, uninitialized or zeroed; on a GPU like cuda::empty() and cuda::zeros().
  // Throws Error(kOutOfMemory) with the requested bytes.
  static Tensor empty(std::initializer_list<int64_t> shape, DType dtype, Device device = {});
  static Tensor zeros(std::initializer_list<int64_t> shape, DType dtype, Device device = {});
  template <class T>
  static Tensor from(std::span<const T> values, std::initializer_list<int64_t> shape);

  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }  // NOLINT: a tensor converts to a view implicitly
  const std::shared_ptr<void>& storage() const { return storage_; }
  DType dtype() const { return view_.dtype; }
  int64_t shape(int dim) const { return view_.shape[static_cast<size_t>(dim)]; }

  template <class T>
  T* as() const {
    return view_.as<T>();
  }
  template <class T>
  View<T> span() const {
    return view_.span<T>();
  }

 private:
  TensorView view_;
  std::shared_ptr<void> storage_;
};

template <class T>
Tensor Tensor::from(std::span<const T> values, std::initializer_list<int64_t> shape) {
  Tensor made = empty(shape, dtype_of<T>);
  require(made.view().num_elements() == static_cast<int64_t>(values.size()), "tensor ", made.view(), " from ",
          values.size(), " values");
  std::copy(values.begin(), values.end(), made.as<T>());
  return made;
}

}  // namespace attend
#pragma GCC visibility pop
