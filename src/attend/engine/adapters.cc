#include "attend/engine/adapters.h"

#include <utility>

#include "attend/base/error.h"
#include "attend/model/adapters/peft_config.h"

namespace attend {
namespace {

// Calls fn, and puts the adapter's name before its errors.
template <class Fn>
auto with_name(const std::string& name, const Fn& fn) {
  try {
    return fn();
  } catch (const Error& error) {
    fail(error.code(), "adapter ", name, ": ", error.what());
  }
}

std::unique_ptr<const AdapterFolder> open_folder(const AdapterPath& path) {
  require(!path.name.empty(), "adapter of ", path.path.string(), ": expected a name");
  return with_name(path.name, [&] {
    auto folder = std::make_unique<const AdapterFolder>(path.path);
    read_peft_config(*folder);
    return folder;
  });
}

std::shared_ptr<NamedAdapter> make_adapter(const AdapterPath& path, const AdapterFolder& folder) {
  return std::make_shared<NamedAdapter>(
      NamedAdapter{.source = path, .salt = "adapter:" + folder.digest() + ":", .weights = {}});
}

}  // namespace

Adapters::Adapters(const std::vector<AdapterPath>& paths) {
  for (const AdapterPath& path : paths) {
    require(!adapters_.contains(path.name), "adapter ", path.name, ": the name occurs twice");
    auto folder = open_folder(path);
    adapters_[path.name] = make_adapter(path, *folder);
    opened_[path.name] = std::move(folder);
  }
}

void Adapters::set_model(std::vector<AdapterLayers> ranks) {
  ranks_ = std::move(ranks);
  for (const auto& [name, folder] : opened_)
    adapters_.at(name)->weights = with_name(name, [&] { return load_adapter(*folder, layers_of_ranks()); });
  opened_.clear();
}

std::vector<const AdapterLayers*> Adapters::layers_of_ranks() const {
  std::vector<const AdapterLayers*> ranks;
  for (const AdapterLayers& layers : ranks_) ranks.push_back(&layers);
  return ranks;
}

std::shared_ptr<const NamedAdapter> Adapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

void Adapters::check_new(const std::string& name) const {
  require(!adapters_.contains(name), "adapter ", name, ": already loaded; unload it first");
}

void Adapters::load(const AdapterPath& path) {
  {
    const std::lock_guard lock(mutex_);
    check_new(path.name);
  }
  // Reading takes long, and other requests continue.
  const auto folder = open_folder(path);
  std::shared_ptr<NamedAdapter> adapter = make_adapter(path, *folder);
  adapter->weights = with_name(path.name, [&] { return load_adapter(*folder, layers_of_ranks()); });
  const std::lock_guard lock(mutex_);
  check_new(path.name);
  adapters_[path.name] = std::move(adapter);
}

void Adapters::add_dummy(const std::string& name, int rank) {
  const std::lock_guard lock(mutex_);
  check_new(name);
  adapters_[name] = std::make_shared<NamedAdapter>(
      NamedAdapter{.source = {.name = name, .path = {}},
                   .salt = "adapter:" + name + ":",
                   .weights = make_dummy_adapter(rank, adapters_.size(), layers_of_ranks())});
}

void Adapters::unload(std::string_view name) {
  std::shared_ptr<NamedAdapter> removed;  // freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) fail(ErrorCode::kNotFound, "adapter ", name, ": not loaded");
  removed = std::move(found->second);
  adapters_.erase(found);
}

std::vector<AdapterPath> Adapters::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterPath> paths;
  for (const auto& [name, adapter] : adapters_) paths.push_back(adapter->source);
  return paths;
}

}  // namespace attend
