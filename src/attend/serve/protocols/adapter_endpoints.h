// Endpoints that load and unload LoRA adapters: vLLM's /v1/load_lora_adapter and SGLang's /load_lora_adapter.
#pragma once

#include <string>
#include <vector>

#include "attend/engine/async_engine.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

// Read the fields of a request, change the adapters of the engine, and return SGLang's reply as JSON. Unknown
// fields are appended to `ignored`. `served_names`: names that are not available for adapters. Throw
// ApiError: 400 for invalid fields, names in use and adapters that do not fit the model, and 404 for a
// missing folder or an unknown name.
std::string load_adapter(const Json& body, const std::vector<std::string>& served_names, AsyncEngine& engine,
                         std::vector<std::string>& ignored);
std::string unload_adapter(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored);

}  // namespace attend::serve
