// Adapters: the LoRA adapters of an engine, by name.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint/adapter_folder.h"
#include "attend/engine/engine_config.h"
#include "attend/model/adapters/adapter_layers.h"
#include "attend/model/adapters/model_adapter.h"

namespace attend {

// A request holds its adapter, so an adapter that is unloaded lives until its last request ends.
struct NamedAdapter {
  AdapterPath source;
  // Part of the requests' cache_salt: K/V depend on the adapter's content, not on its name.
  std::string salt;
  ModelAdapter weights;
};

// Thread-safe, except for the first two functions.
class Adapters {
 public:
  // Opens the folders before the model is loaded. Throws the errors of AdapterFolder and read_peft_config(),
  // with the adapter's name.
  explicit Adapters(const std::vector<AdapterPath>& paths);
  // Reads the opened adapters for the model, with the layers of each rank. Throws the errors of
  // load_adapter(), with the adapter's name.
  void set_model(std::vector<AdapterLayers> ranks);

  // Returns the adapter; null: there is none of this name. Its weights are read by set_model().
  std::shared_ptr<const NamedAdapter> find(std::string_view name) const;
  // Adds an adapter. Throws Error(kInvalidArgument) for an empty name or one that is in use, and the errors
  // of the functions above.
  void load(const AdapterPath& path);
  // Adds an adapter of random values, for benchmarks.
  void add_dummy(const std::string& name, int rank);
  // Removes an adapter: later requests cannot use it, requests that have it continue. Throws Error(kNotFound)
  // if there is none of this name.
  void unload(std::string_view name);
  // In the order of names.
  std::vector<AdapterPath> list() const;

 private:
  // Throws Error(kInvalidArgument) for a name that is in use. Requires mutex_.
  void check_new(const std::string& name) const;
  // Pointers to the elements of ranks_.
  std::vector<const AdapterLayers*> layers_of_ranks() const;

  std::vector<AdapterLayers> ranks_;
  std::map<std::string, std::unique_ptr<const AdapterFolder>> opened_;  // until set_model()
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<NamedAdapter>, std::less<>> adapters_;
};

}  // namespace attend
