// Finds the scales of K and V that a checkpoint has for an fp8 KV cache.
#pragma once

#include <string_view>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/kv/kv_pool.h"
#include "attend/model/config/model_spec.h"
#include "attend/model/weights/tensor_names.h"

namespace attend {

// Same as read_kv_scales (model.h), for open files with these tensor names and prefixes.
std::vector<KvScales> find_kv_scales(const CheckpointTensors& files, const ModelSpec& spec,
                                     const DecoderNames& names, WeightPrefixes prefixes);

// Returns whether a tensor's name is that of such a scale.
bool is_kv_scale(std::string_view name);

}  // namespace attend
