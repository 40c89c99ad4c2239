// Bindings of version, build information and settings of the library.
#include <nanobind/stl/string.h>

#include <array>
#include <chrono>
#include <utility>

#include "attend/attention/capability.h"
#include "attend/backends/table.h"
#include "attend/base/parallel.h"
#include "attend/base/version.h"
#include "attend/kernels/common/build_info.h"
#include "call_in_flight.h"
#include "module.h"

namespace attend::python {
namespace {

namespace nb = nanobind;

constexpr std::array kArchitectures = {
    Architecture::kCpu,    Architecture::kTuring,    Architecture::kAmpere,           Architecture::kAda,
    Architecture::kHopper, Architecture::kBlackwell, Architecture::kBlackwellGeforce, Architecture::kAmd};

nb::str text(std::string_view view) { return nb::str(view.data(), view.size()); }

nb::list to_names(Set<Architecture> architectures) {
  nb::list names;
  for (Architecture architecture : kArchitectures)
    if (architectures.contains(architecture)) names.append(text(to_string(architecture)));
  return names;
}

nb::list to_page_sizes(PageSizes sizes) {
  nb::list list;
  for (int size = 1; size <= 256; size *= 2)
    if (sizes.contains(size)) list.append(size);
  return list;
}

nb::dict to_record(const Capability& can) {
  nb::dict record;
  record["prefill"] = to_names(can.prefill);
  record["decode"] = to_names(can.decode);
  record["page_sizes"] = to_page_sizes(can.page_sizes);
  record["head_dims"] = nb::make_tuple(can.head_dims.qk, can.head_dims.v);
  record["window"] = can.window;
  record["chunk"] = can.chunk;
  record["logit_cap"] = can.logit_cap;
  record["sinks"] = can.sinks;
  record["kv_scales"] = can.kv_scales;
  record["speculation"] = text(to_string(can.speculation));
  record["deterministic"] = to_names(can.deterministic);
  record["graphs"] = can.graphs;
  record["text"] = describe(can);
  return record;
}

nb::dict backends() {
  nb::dict table;
  for (const BackendEntry& entry : backend_table()) {
    nb::dict record;
    for (const auto& [kind, capability] :
         {std::pair{KvKind::kMha, entry.mha}, std::pair{KvKind::kMla, entry.mla}})
      if (capability.supports_any_phase()) record[text(to_string(kind))] = to_record(capability);
    table[text(entry.name)] = record;
  }
  return table;
}

nb::dict build_info_dict() {
  const kernels::BuildInfo info = kernels::build_info();
  nb::list architectures;
  for (const std::string_view architecture : info.cuda_architectures)
    architectures.append(text(architecture));
  nb::dict record;
  record["version"] = text(version());
  record["instruction_set"] = text(info.instruction_set);
  record["cuda_architectures"] = architectures;
  return record;
}

}  // namespace

void bind_library(Module& module) {
  module.def("version", [] { return text(version()); });
  module.def(
      "build_info", &build_info_dict,
      "Capabilities of this build: {'version': '0.1.0', 'instruction_set': the best supported by CPU kernels "
      "and this machine, such as 'avx512', 'cuda_architectures': those that GPU kernels were built for, "
      "such as ['90-real', '90-virtual'], empty without GPU kernels}.");
  module.def(
      "backends", &backends,
      "Capability records by backend name: {name: {'MHA': {...}, 'MLA': {...}}}, without unsupported kinds. "
      "A record lists the architectures of prefill and decode, page sizes, maximum head "
      "dims and features, and describes all of it in 'text'.");
  module.def("num_threads", &num_threads, "Number of threads of the CPU kernels.");
  module.def(
      "set_num_threads", &set_num_threads, nb::arg("num_threads"),
      "Sets the number of threads of the CPU kernels. Running calls of other threads finish with the old "
      "number.");
  module.def("stop_calls", &stop_calls, "Stops new calls, except on this thread. Call at exit.");
  module.def(
      "await_calls", [](int timeout_ms) { await_calls(std::chrono::milliseconds(timeout_ms)); },
      nb::arg("timeout_ms"), "Waits until no other thread is in a call, or until the timeout.");
  module.def(
      "disable_leak_warnings", [] { nb::set_leak_warnings(false); },
      "Omits nanobind's report of objects that still exist when the interpreter ends.");
}

}  // namespace attend::python
