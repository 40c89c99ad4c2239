// Parts of the extension module attend._attend.
#pragma once

#include "call_in_flight.h"

namespace attend::python {

// Public entries of the kernels: attention, mla; store_kv, store_mla, merge.
void bind_attention(Module& module);
void bind_store_merge(Module& module);
// Functions of attend.flash_attn_interface and attend.flash_mla.
void bind_flash_attention(Module& module);
void bind_flash_mla(Module& module);
// Layers between attention for attend.sgl_kernel (norms, activations, RoPE), and sampling.
void bind_layers(Module& module);
void bind_sampling(Module& module);
// Batches of sparse attention for attend.flash_mla.
void bind_selected_rows(Module& module);
// Engine of attend.engine, and embedder of attend.embedder.
void bind_engine(Module& module);
void bind_embedder(Module& module);
// Functions version, build_info, backends and num_threads.
void bind_library(Module& module);

}  // namespace attend::python
