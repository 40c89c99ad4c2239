// GPU implementation of store.h.
#pragma once

#include "attend/kernels/kv_store/batch_arrays.h"
#include "attend/kernels/kv_store/copy_pages.h"
#include "attend/kernels/kv_store/latent_rows.h"
#include "attend/kernels/kv_store/selected_rows.h"
#include "attend/kernels/kv_store/store.h"

namespace attend::kernels::cuda {

void store_kv(const StoreKvArgs& args, Stream& stream);
void store_mla(const StoreMlaArgs& args, Stream& stream);

// derive_batch and append_keys (batch_arrays.h) on a GPU: one launch each, for arrays in device memory.

void derive_batch(const BatchSource& source, const BatchArrays& arrays, Stream& stream);
void append_keys(const BatchSource& source, const BatchArrays& arrays, const StoreKvArgs& store,
                 Stream& stream);

// Gather of latent rows from a pool on a GPU. Arguments are those checked by the entries.

void gather_latent(const GatherLatentArgs& args, Stream& stream);
void cu_seqlens_to_lengths(View<const int32_t> sums, View<int32_t> lengths, Stream& stream);
void copy_to_heads(const TensorView& from, const TensorView& to, Stream& stream);

// Selected rows of a latent cache on a GPU. Arguments are those checked by the entries.

void compact_slots(const CompactSlotsArgs& args, Stream& stream);
void dequantize_rows(const DequantizeRowsArgs& args, Stream& stream);

// Pages of a cache on a GPU.

void copy_pages(const PageTiles& tiles, View<const PageCopy> pages, CopyDirection direction, Stream& stream,
                CopyMethod method);

}  // namespace attend::kernels::cuda
