// Tensors that Python gives: torch's through DLPack's C exchange functions, others through __dlpack__.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>

#include "attend/tensor/device.h"
#include "attend/tensor/tensor.h"
#include "dlpack_exchange.h"

namespace attend::python {

namespace nb = nanobind;

enum class Access { kRead, kWrite };

// The dtypes that an argument may have.
enum class Accepts {
  kActivations,  // float32, float16, bfloat16
  kKeys,         // those and the two of fp8
  kFloat32,
  kInt32,
  kUint64,
  kBytes,  // uint8, or float8_e4m3fn for bytes of any kind
};

// The exchange functions of the object's type; null when it has none of version 1.
const DlpackExchange* exchange_of(nb::handle object);

// The module of the object's type: "numpy", "jaxlib._jax", ...
std::string module_of(nb::handle object);
bool is_numpy(nb::handle object);

// A tensor of any library as a view. The memory is valid while this and the Python object live.
//
// numpy's arrays may be of ml_dtypes (bfloat16, float8_e4m3fn, float8_e5m2). Throws Error naming the argument
// and what is accepted when the object is no tensor, when its dtype is not accepted or its device none of
// attend's, when its library cannot export it (torch's tensors on `meta`), when torch would record it for a
// backward pass that attend does not have, and, to write, when it is read-only or an array of jax, which are
// immutable.
class TensorArgument {
 public:
  // Not given: an empty view.
  TensorArgument() = default;
  // None is "not given".
  TensorArgument(std::string_view name, nb::handle object, Accepts accepts, Access access = Access::kRead);

  bool given() const { return view_.has_value(); }
  const TensorView& view() const { return given() ? *view_ : kNotGiven; }
  const TensorView& operator*() const { return view(); }
  const TensorView* operator->() const { return &view(); }

 private:
  void read_capsule(std::string_view name, nb::handle object, Accepts accepts, Access access);

  static inline const TensorView kNotGiven;

  // Most arguments of a call are not given: they cost nothing.
  std::optional<TensorView> view_;
  nb::object capsule_;
};

// The same tensor, contiguous and with an address (that nothing is read from) when it has no elements, for
// which libraries have strides of 0 or null, or no memory.
TensorView with_address(TensorView view);

// True or False. Throws Error(kInvalidArgument) naming the argument otherwise.
bool bool_argument(std::string_view name, nb::handle value);

// A number as float32, finite or not. Throws Error(kInvalidArgument) naming the argument otherwise.
float float_argument(std::string_view name, nb::handle value);

// An integer of Python or numpy that is no bool. Throws Error naming the argument and its value.
bool is_number(nb::handle object);
int int_argument(std::string_view name, nb::handle value);

// Throws Error naming the argument when it is None.
void require_given(std::string_view name, const TensorArgument& tensor);

// The elements of a contiguous int32 vector on `device`, or of an empty view. Throws Error naming the
// argument.
View<const int32_t> int32_vector(std::string_view name, const TensorArgument& tensor, Device device);

// The stream on which work over the object's memory is to be queued: the current one of its library. Throws
// Error(kUnsupported) for a GPU tensor of a library that does not tell.
Stream stream_of(nb::handle object, Device device);

}  // namespace attend::python
