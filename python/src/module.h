// The parts of the extension module attend._attend.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

// The kernels' public entries: attention, mla; store_kv, store_mla, merge.
void bind_attention(nanobind::module_& module);
void bind_store_merge(nanobind::module_& module);
// What attend.flash_attn_interface and attend.flash_mla call.
void bind_flash_attention(nanobind::module_& module);
void bind_flash_mla(nanobind::module_& module);
// Layers between attention, for attend.sgl_kernel: norms, activations, RoPE; and sampling.
void bind_layers(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);
// What sparse attention of attend.flash_mla makes its batches of.
void bind_selected_rows(nanobind::module_& module);
// What attend.engine calls.
void bind_engine(nanobind::module_& module);
// version, build_info, backends, num_threads.
void bind_library(nanobind::module_& module);

}  // namespace attend::python
