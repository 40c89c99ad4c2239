// TensorFiles: tensors of a checkpoint that consists of one or several mapped files.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/tensor_file.h"

namespace attend {

class TensorFiles : public CheckpointTensors {
 public:
  using CheckpointTensors::CheckpointTensors;

  bool contains(std::string_view name) const override { return locate(name) != nullptr; }
  std::vector<std::string> names() const override;
  const TensorEntry& entry(std::string_view name) const override;
  Tensor tensor(std::string_view name) const override;
  std::string read(std::string_view name) const override;
  std::string where(std::string_view name) const override;
  void fetch(std::string_view name, uint64_t begin, uint64_t end,
             const std::function<void(size_t bytes)>& fetched) const override;
  void prefetch_all(const std::atomic<bool>& stop) const override;
  void check_unchanged() const override;

 protected:
  const TensorFile& file_with_tensor(std::string_view name) const;

  std::vector<TensorFile> files_;
  std::unordered_map<std::string, size_t> tensor_file_;  // index into files_

 private:
  const TensorFile* locate(std::string_view name) const;
};

}  // namespace attend
