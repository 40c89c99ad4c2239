// Converts arguments of the Python interfaces to arguments of the kernels.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "attend/kernels/attention/attention_batch.h"
#include "attend/tensor/cuda.h"
#include "released_gil.h"
#include "tensors/tensor_argument.h"
#include "tensors/workspaces.h"

namespace attend::python {

// Merges dimensions 0 and 1. Throws Error(kUnsupported) if they are not adjacent in memory.
TensorView merge_first_two(std::string_view name, const TensorView& view);

// Returns `value` if it is finite and above 0 (parse_cap() also accepts 0). Otherwise throws Error that names
// the argument.
float positive(std::string_view name, float value);
float parse_cap(std::string_view name, float value);

// Returns the page size of [num_pages, page_size, ...]. Throws Error unless it is a power of two from 1 to
// 256.
int32_t get_page_size(const TensorView& cache);

// Reads a Python number. Throws Error that names the argument unless it is finite.
float parse_scale(std::string_view name, nb::handle value);

// Reads a Python number. Throws Error that names the argument unless it is finite and above 0.
float positive_number(std::string_view name, nb::handle value);

// Returns 1 / sqrt(head_dim) for None.
float scale_or_default(std::string_view name, nb::handle value, int64_t head_dim);

// Returns float32 [num_q_heads] on `device`; empty for None.
View<const float> parse_sinks(std::string_view name, const TensorArgument& sinks, int64_t num_q_heads,
                              Device device);

// Converts FlashAttention's window_size (left, right), with -1 for no bound, and attention_chunk. Throws
// Error(kInvalidArgument) unless window_size is two ints and the chunk is at least 0.
kernels::AttentionMask parse_mask(bool causal, nb::handle window_size, int chunk);

// FlashAttention's num_splits: 0 balances splits over the GPU or the threads, 1 disables splits, and n uses
// at most n workers for each request, K/V head and 128 rows (query tokens times heads per K/V head, at most
// `max_rows` per request).
struct Splits {
  kernels::SplitRule rule = kernels::SplitRule::kBalanced;
  int num_workers = 0;  // 0: all
};
Splits make_splits(int num_splits, int64_t num_reqs, int64_t num_kv_heads, int64_t max_rows, Device device);

void require_same_device(std::string_view name, const TensorView& view, Device device);

// Calls fn(stream) for work on `object`'s memory; on the CPU without the GIL.
template <class Fn>
void run_on_stream(nb::handle object, Device device, const Fn& fn) {
  Stream stream = current_stream(object, device);
  if (device.type == DeviceType::kCpu) {
    const ReleasedGil others_run;
    return fn(stream);
  }
  const cuda::DeviceScope scope(device);
  fn(stream);
}

// Workspaces of this process. Calls that use them hold the GIL.
Workspaces& workspaces();

// Runs the call on the stream of the object's library; on the CPU without the GIL.
void run_for(nb::handle queries, AttentionCall& call);

}  // namespace attend::python
