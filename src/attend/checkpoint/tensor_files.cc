#include "attend/checkpoint/tensor_files.h"

#include "attend/base/error.h"

namespace attend {

const TensorFile* TensorFiles::locate(std::string_view name) const {
  const auto found = tensor_file_.find(std::string(name));
  return found == tensor_file_.end() ? nullptr : &files_[found->second];
}

const TensorFile& TensorFiles::file_with_tensor(std::string_view name) const {
  const TensorFile* file = locate(name);
  if (file == nullptr) fail(ErrorCode::kNotFound, path().string(), ": weights: no tensor \"", name, "\"");
  return *file;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : tensor_file_) names.push_back(name);
  return names;
}

const TensorEntry& TensorFiles::entry(std::string_view name) const {
  return *file_with_tensor(name).find(name);
}

Tensor TensorFiles::tensor(std::string_view name) const { return file_with_tensor(name).tensor(name); }

std::string TensorFiles::read(std::string_view name) const {
  const TensorFile& file = file_with_tensor(name);
  return file.read(*file.find(name));
}

std::string TensorFiles::where(std::string_view name) const {
  return file_with_tensor(name).path().string() + ": tensor \"" + std::string(name) + "\"";
}

void TensorFiles::fetch(std::string_view name, uint64_t begin, uint64_t end,
                        const std::function<void(size_t bytes)>& fetched) const {
  const TensorFile& file = file_with_tensor(name);
  file.fetch(*file.find(name), begin, end, fetched);
}

void TensorFiles::prefetch_all(const std::atomic<bool>& stop) const {
  for (const TensorFile& file : files_) file.prefetch_all(stop);
}

void TensorFiles::check_unchanged() const {
  for (const TensorFile& file : files_) file.check_unchanged();
}

}  // namespace attend
