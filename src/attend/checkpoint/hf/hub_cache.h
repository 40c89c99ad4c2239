// Models in the cache of Hugging Face's tools, as `hf download ORG/MODEL` stores them.
// https://huggingface.co/docs/huggingface_hub/guides/manage-cache
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Returns the folder that HF_HUB_CACHE names, otherwise hub/ in HF_HOME or ~/.cache/huggingface. Empty if
// none of these variables and no home directory is set.
std::filesystem::path hub_cache();

// Returns the name of the model that a folder of a cache holds ("models--ORG--MODEL"), or an empty text for
// other folders.
std::string cached_model_name(std::string_view folder_name);

// Returns the sorted names of the models in the cache folder `cache`, at most `max_names`.
std::vector<std::string> cached_models(const std::filesystem::path& cache, size_t max_names);

}  // namespace attend
