// ModelAdapter: a LoRA adapter in memory, in the layout of a model's layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/checkpoint/adapter_folder.h"
#include "attend/kernels/gemm/low_rank.h"
#include "attend/model/adapters/adapter_layers.h"
#include "attend/tensor/tensor.h"

namespace attend {

// Immutable after load_adapter().
struct ModelAdapter {
  std::vector<kernels::LowRankAdapter> ranks;  // by rank of the model
  std::vector<Tensor> tensors;                 // memory of their terms, or tables of GPUs
  size_t num_bytes = 0;
  int num_modules = 0;  // modules that the adapter changes
};

// Reads an adapter for a model, with the layers of each rank. Rows and columns are divided like those of the
// base weights. Throws the errors of read_peft_config(); Error(kUnsupported) for a module that attend does
// not adapt; and Error(kCorruptFile) for a tensor that is missing, belongs to no module of the model, or has
// another shape, as of an adapter of another model. Each names the tensor.
ModelAdapter load_adapter(const AdapterFolder& folder, std::span<const AdapterLayers* const> ranks);

// Makes an adapter of this rank with random values for every layer, for benchmarks. `seed`: of the values.
ModelAdapter make_dummy_adapter(int rank, uint64_t seed, std::span<const AdapterLayers* const> ranks);

}  // namespace attend
