// Bindings of selected rows (sparse attention), from which attend/flash_mla.py builds batches.
#include "attend/kernels/kv_store/selected_rows.h"
#include "module.h"
#include "tensors/arguments.h"

namespace attend::python {
namespace {

View<int32_t> written_vector(std::string_view name, const TensorArgument& tensor, Device device) {
  require_given(name, tensor);
  const View<const int32_t> view = int32_vector(name, tensor, device);
  return {const_cast<int32_t*>(view.data()), view.size()};
}

void compact_slots(nb::handle slots_object, nb::handle lengths_object, int32_t rows_per_length,
                   int64_t num_slots, nb::handle out_object, nb::handle counts_object) {
  const TensorArgument slots("indices", slots_object, Accepts::kInt32),
      lengths("topk_length", lengths_object, Accepts::kInt32),
      out("slots", out_object, Accepts::kInt32, Access::kWrite),
      counts("counts", counts_object, Accepts::kInt32, Access::kWrite);
  require_given("indices", slots);
  require(slots->rank == 2, "indices ", *slots, ": expected [num_tokens, topk]");
  const Device device = slots->device;
  const kernels::CompactSlotsArgs args{.slots = *slots,
                                       .lengths = int32_vector("topk_length", lengths, device),
                                       .rows_per_length = rows_per_length,
                                       .num_slots = num_slots,
                                       .out = *out,
                                       .counts = written_vector("counts", counts, device)};
  require(args.lengths.empty() || std::ssize(args.lengths) * rows_per_length == slots->shape[0],
          "topk_length of ", args.lengths.size(), " entries: expected ", slots->shape[0] / rows_per_length);
  run_on_stream(slots_object, device, [&](Stream& stream) { kernels::compact_slots(args, stream); });
}

void dequantize_rows(nb::handle cache_object, nb::handle slots_object, nb::handle counts_object,
                     nb::handle first_object, nb::handle out_object) {
  const TensorArgument cache("k_cache", cache_object, Accepts::kBytes),
      slots("slots", slots_object, Accepts::kInt32), counts("counts", counts_object, Accepts::kInt32),
      first("first", first_object, Accepts::kInt32),
      out("rows", out_object, Accepts::kActivations, Access::kWrite);
  require_given("k_cache", cache);
  const bool is_v32 = cache->rank == 3 && cache->shape[2] == kernels::kV32Row.bytes();
  require(is_v32 || (cache->rank == 3 && cache->shape[2] == kernels::kModel1Row.bytes()), "k_cache ", *cache,
          ": expected [num_pages, page_size, 1, ", kernels::kV32Row.bytes(), " or ",
          kernels::kModel1Row.bytes(), "] of bytes");
  kernels::DequantizeRowsArgs args{
      .layout = is_v32 ? kernels::QuantizedLayout::kV32 : kernels::QuantizedLayout::kModel1,
      .cache = *cache,
      .slots = *slots,
      .counts = int32_vector("counts", counts, cache->device),
      .first = int32_vector("first", first, cache->device),
      .out = *out};
  args.cache.dtype = DType::kU8;
  run_on_stream(cache_object, cache->device, [&](Stream& stream) { kernels::dequantize_rows(args, stream); });
}

}  // namespace

void bind_selected_rows(Module& module) {
  const auto object = [](const char* name) { return nb::arg(name).none(); };
  using nb::arg;
  module.def("compact_slots", &compact_slots, object("indices"), object("topk_length"),
             arg("rows_per_length"), arg("num_slots"), object("slots"), object("counts"));
  module.def("dequantize_rows", &dequantize_rows, object("k_cache"), object("slots"), object("counts"),
             object("first"), object("rows"));
}

}  // namespace attend::python
