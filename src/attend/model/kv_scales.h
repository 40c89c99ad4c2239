// Scales of K and V that a checkpoint has for an fp8 KV cache.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "attend/kv/kv_pool.h"
#include "attend/model/model_spec.h"

#pragma GCC visibility push(default)
namespace attend {

// Of each layer: 1 where there is none, or one that is not above 0, by which publishers mean none; k_scale
// alone serves both, and of latent attention k_scale always does: V is a part of its row. Empty: the
// checkpoint has none. Throws Error(kCorruptFile) naming a tensor of several elements, one that is no number,
// and a v_scale without k_scale.
std::vector<KvScales> read_kv_scales(const std::filesystem::path& directory, const ModelSpec& spec);

// Whether a tensor is such a scale, by its name.
bool is_kv_scale(std::string_view name);

}  // namespace attend
#pragma GCC visibility pop
