// Tensor arguments from Python: torch's through DLPack's C exchange functions, others through __dlpack__.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "tensors/dlpack_exchange.h"

namespace attend::python {

namespace nb = nanobind;

enum class Access { kRead, kWrite };

// Accepted dtypes of an argument.
enum class Accepts {
  kActivations,  // float32, float16, bfloat16
  kKeys,         // kActivations and both fp8 dtypes
  kFloat32,
  kInt32,
  kUint64,
  kBytes,  // uint8, or float8_e4m3fn for untyped bytes
};

// Returns the exchange functions of the object's type; null without version 1.
const DlpackExchange* find_exchange(nb::handle object);

// Returns the module of the object's type: "numpy", "jaxlib._jax", ...
std::string module_name(nb::handle object);
bool is_numpy(nb::handle object);

// View of a tensor of any library. The memory is valid during the lifetime of this and the Python object.
//
// numpy arrays may have dtypes of ml_dtypes (bfloat16, float8_e4m3fn, float8_e5m2). Throws Error that names
// the argument and what is accepted if the object is not a tensor, its dtype or device is not supported, its
// library cannot export it (torch's `meta` device), or torch would record it for a backward pass. For
// writing, also if it is read-only or a jax array, which is immutable.
class TensorArgument {
 public:
  // Not given: an empty view.
  TensorArgument() = default;
  // None means "not given".
  TensorArgument(std::string_view name, nb::handle object, Accepts accepts, Access access = Access::kRead);

  bool given() const { return view_.has_value(); }
  const TensorView& view() const { return given() ? *view_ : kNotGiven; }
  const TensorView& operator*() const { return view(); }
  const TensorView* operator->() const { return &view(); }

 private:
  void read_capsule(std::string_view name, nb::handle object, Accepts accepts, Access access);

  static inline const TensorView kNotGiven;

  // Most arguments of a call are not given, so this case is cheap.
  std::optional<TensorView> view_;
  nb::object capsule_;
};

// Returns the same tensor; if it has no elements, contiguous and with a non-null address, since libraries use
// strides of 0 or null, or no memory.
TensorView with_address(TensorView view);

// Reads True or False. Otherwise throws Error(kInvalidArgument) that names the argument.
bool bool_argument(std::string_view name, nb::handle value);

// Reads a number as float32, finite or not. Otherwise throws Error(kInvalidArgument) that names the argument.
float float_argument(std::string_view name, nb::handle value);

// Returns true for an integer of Python or numpy that is not a bool. int_argument() throws Error that names
// the argument and its value.
bool is_number(nb::handle object);
int int_argument(std::string_view name, nb::handle value);

// Throws Error that names the argument if it is None.
void require_given(std::string_view name, const TensorArgument& tensor);

// Returns the elements of a contiguous int32 vector on `device`, or of an empty view. Throws Error that names
// the argument.
View<const int32_t> int32_vector(std::string_view name, const TensorArgument& tensor, Device device);

// Returns the stream for work on the object's memory: the current stream of its library. Throws
// Error(kUnsupported) for a GPU tensor of a library that does not report it.
Stream current_stream(nb::handle object, Device device);

}  // namespace attend::python
