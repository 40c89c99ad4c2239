// Parts of the extension module attend._attend.
#pragma once

#include <nanobind/nanobind.h>

namespace attend::python {

// Public entries of the kernels: attention, mla; store_kv, store_mla, merge.
void bind_attention(nanobind::module_& module);
void bind_store_merge(nanobind::module_& module);
// Functions of attend.flash_attn_interface and attend.flash_mla.
void bind_flash_attention(nanobind::module_& module);
void bind_flash_mla(nanobind::module_& module);
// Layers between attention for attend.sgl_kernel (norms, activations, RoPE), and sampling.
void bind_layers(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);
// Batches of sparse attention for attend.flash_mla.
void bind_selected_rows(nanobind::module_& module);
// Engine of attend.engine.
void bind_engine(nanobind::module_& module);
// Functions version, build_info, backends and num_threads.
void bind_library(nanobind::module_& module);

}  // namespace attend::python
