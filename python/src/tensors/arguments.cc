#include "tensors/arguments.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "released_gil.h"

namespace attend::python {

TensorView merge_first_two(std::string_view name, const TensorView& view) {
  require(view.rank >= 2, name, " ", view, ": expected at least 2 dimensions");
  const int64_t outer = view.shape[0], inner = view.shape[1];
  if (outer > 1 && inner > 1 && view.strides[0] != inner * view.strides[1])
    fail(ErrorCode::kUnsupported, name, " ", view, ": strides ", view.strides[0], " and ", view.strides[1],
         " of the first two dimensions: kernels treat them as one, so the first must be ",
         inner * view.strides[1]);
  TensorView merged = view;
  --merged.rank;
  for (int dim = 1; dim < merged.rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    merged.shape[d] = view.shape[d + 1];
    merged.strides[d] = view.strides[d + 1];
  }
  merged.shape[0] = outer * inner;
  merged.strides[0] = inner > 1 ? view.strides[1] : view.strides[0];
  return merged;
}

namespace {

// Returns a number as float32, or no value if it is not a number or too large.
std::optional<float> to_number(nb::handle value) {
  if (PyBool_Check(value.ptr()) || nb::hasattr(value, "__dlpack__")) return std::nullopt;
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto rounded = static_cast<float>(number);
  if (!std::isfinite(rounded)) return std::nullopt;
  return rounded;
}

std::string to_repr(nb::handle value) { return nb::cast<std::string>(nb::repr(value)); }

}  // namespace

float positive(std::string_view name, float value) {
  require(value > 0.0f && std::isfinite(value), name, " ", value, ": expected above 0 and finite");
  return value;
}

float parse_cap(std::string_view name, float value) {
  require(value >= 0.0f && std::isfinite(value), name, " ", value,
          ": expected above 0 and finite, or 0 for none");
  return value;
}

int32_t get_page_size(const TensorView& cache) {
  const int64_t page_size = cache.shape[1];
  require(page_size <= 256 && std::has_single_bit(static_cast<uint64_t>(page_size)), "page_size ", page_size,
          ": expected a power of two from 1 to 256");
  return static_cast<int32_t>(page_size);
}

float parse_scale(std::string_view name, nb::handle value) {
  const std::optional<float> number = to_number(value);
  // Formatting the value costs more than reading the other numbers of a call, so it is done only for the
  // message.
  if (!number.has_value())
    fail(ErrorCode::kInvalidArgument, name, " ", to_repr(value), ": expected a finite number");
  return *number;
}

float positive_number(std::string_view name, nb::handle value) {
  const std::optional<float> number = to_number(value);
  if (!number.has_value() || *number <= 0.0f)
    fail(ErrorCode::kInvalidArgument, name, " ", to_repr(value), ": expected a finite number above 0");
  return *number;
}

float scale_or_default(std::string_view name, nb::handle value, int64_t head_dim) {
  if (value.is_none()) return 1.0f / std::sqrt(static_cast<float>(head_dim));
  const std::optional<float> number = to_number(value);
  if (!number.has_value())
    fail(ErrorCode::kInvalidArgument, name, " ", to_repr(value),
         ": expected a finite number, or None for 1 / sqrt(", head_dim, ")");
  return *number;
}

View<const float> parse_sinks(std::string_view name, const TensorArgument& sinks, int64_t num_q_heads,
                              Device device) {
  if (!sinks.given()) return {};
  require(sinks->rank == 1 && sinks->dtype == DType::kF32 && sinks->is_contiguous(), name, " ", *sinks,
          ": expected a contiguous float32 vector, one number per query head");
  require_same_device(name, *sinks, device);
  require(sinks->shape[0] == num_q_heads, name, " ", *sinks, ": expected [", num_q_heads,
          "], one number per query head");
  return {static_cast<const float*>(sinks->data), static_cast<size_t>(sinks->shape[0])};
}

namespace {

std::optional<int> to_int32(nb::handle value) {
  if (!value.is_valid() || PyIndex_Check(value.ptr()) == 0) return std::nullopt;
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  int overflow = 0;
  const long number = index.is_valid() ? PyLong_AsLongAndOverflow(index.ptr(), &overflow) : -1;
  PyErr_Clear();
  if (!index.is_valid() || overflow != 0 || number != static_cast<int>(number)) return std::nullopt;
  return static_cast<int>(number);
}

struct Window {
  int left, right;
};
Window parse_window(nb::handle window_size) {
  const nb::object pair = PyTuple_Check(window_size.ptr()) ? nb::borrow(window_size)
                                                           : nb::steal(PySequence_Tuple(window_size.ptr()));
  PyErr_Clear();
  if (pair.is_valid() && PyTuple_Size(pair.ptr()) == 2) {
    const std::optional<int> left = to_int32(PyTuple_GetItem(pair.ptr(), 0)),
                             right = to_int32(PyTuple_GetItem(pair.ptr(), 1));
    if (left.has_value() && right.has_value()) return {*left, *right};
  }
  fail(ErrorCode::kInvalidArgument, "window_size ", to_repr(window_size),
       ": expected two ints of 32 bits, (left, right)");
}

}  // namespace

kernels::AttentionMask parse_mask(bool causal, nb::handle window_size, int chunk) {
  require(chunk >= 0, "attention_chunk ", chunk, ": expected at least 1, or 0 for none");
  const Window window = parse_window(window_size);
  // A causal mask already excludes keys to the right of the query.
  const bool only_left = causal || window.right == 0;
  const int32_t left = window.left < 0 ? -1 : window.left;
  if (only_left) return {.causal = true, .window_left = left, .chunk = chunk};
  if (left < 0 && window.right < 0 && chunk == 0) return {.causal = false};
  return {.causal = true,
          .window_left = left,
          .chunk = chunk,
          .window_right = window.right < 0 ? std::numeric_limits<int32_t>::max() : window.right};
}

Splits make_splits(int num_splits, int64_t num_reqs, int64_t num_kv_heads, int64_t max_rows, Device device) {
  constexpr int64_t kTileRows = 128;
  require(num_splits >= 0, "num_splits ", num_splits,
          ": expected 0 (balanced over the device), 1 (none) or the maximum");
  if (num_splits == 1) return {.rule = kernels::SplitRule::kNone};
  if (num_splits == 0) return {};
  const int64_t num_tiles =
      std::max<int64_t>(num_reqs, 1) * std::max<int64_t>((max_rows + kTileRows - 1) / kTileRows, 1);
  const int64_t most = num_splits * num_tiles * num_kv_heads;
  return {.num_workers = workspaces().num_workers(most, device)};
}

void require_same_device(std::string_view name, const TensorView& view, Device device) {
  require(view.device == device, name, " ", view, ": expected on ", device);
}

Workspaces& workspaces() {
  // Never destroyed: at exit the driver may be unloaded before it.
  static auto* const held = new Workspaces;
  return *held;
}

void run_for(nb::handle queries, AttentionCall& call) {
  const Stream stream = current_stream(queries, call.q.device);
  if (stream.device.type == DeviceType::kCuda) return run(call, workspaces(), stream);
  const ReleasedGil others_run;
  run(call, workspaces(), stream);
}

}  // namespace attend::python
