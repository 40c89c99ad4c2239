#include "attend/serve/protocols/adapter_endpoints.h"

#include <algorithm>

#include "attend/base/error.h"
#include "attend/serve/protocols/errors.h"
#include "attend/serve/protocols/fields/request_fields.h"

namespace attend::serve {
namespace {

std::string require_text(const Fields& fields, const char* key) {
  std::string text = fields.string(key).value_or("");
  if (text.empty()) reject(key, key, ": missing; expected a text");
  return text;
}

// Errors of the adapter's files are shown: the client that loads adapters administers the server.
template <class Fn>
void show_errors(const Fn& change) {
  try {
    change();
  } catch (const Error& error) {
    switch (error.code()) {
      case ErrorCode::kNotFound:
        throw ApiError{404, error.what(), {}, "not_found"};
      case ErrorCode::kCorruptFile:
        throw ApiError{400, error.what(), "lora_path", "corrupt_file"};
      default:
        throw;
    }
  }
}

std::string loaded_adapters(const AsyncEngine& engine) {
  Json loaded = Json::object();
  for (const AdapterPath& adapter : engine.adapters()) loaded[adapter.name] = adapter.path.string();
  const Json reply = {{"success", true}, {"error_message", ""}, {"loaded_adapters", loaded}};
  return json_text(reply);
}

}  // namespace

std::string load_adapter(const Json& body, const std::vector<std::string>& served_names, AsyncEngine& engine,
                         std::vector<std::string>& ignored) {
  const Fields fields(body);
  const std::string name = require_text(fields, "lora_name"), path = require_text(fields, "lora_path");
  fields.boolean("pinned");  // of SGLang: adapters are not evicted
  if (fields.boolean("load_inplace").value_or(false))
    reject_unsupported("load_inplace", "true: not supported; unload the adapter first");
  if (std::ranges::find(served_names, name) != served_names.end())
    reject("lora_name", "lora_name ", name, ": the name of the model; expected another one");
  ignored = fields.unknown();
  show_errors([&] { engine.load_adapter({.name = name, .path = path}); });
  return loaded_adapters(engine);
}

std::string unload_adapter(const Json& body, AsyncEngine& engine, std::vector<std::string>& ignored) {
  const Fields fields(body);
  const std::string name = require_text(fields, "lora_name");
  fields.has("lora_int_id");  // of vLLM
  ignored = fields.unknown();
  show_errors([&] { engine.unload_adapter(name); });
  return loaded_adapters(engine);
}

}  // namespace attend::serve
