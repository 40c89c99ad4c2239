// Safetensors files, mapped into memory.
#pragma once

#include <filesystem>

#include "attend/checkpoint/hf/safetensors_header.h"
#include "attend/checkpoint/tensor_file.h"

namespace attend {

class SafetensorsFile : public TensorFile {
 public:
  // Maps the file and checks its header. Throws Error(kNotFound) if it cannot be read, Error(kCorruptFile)
  // like parse_safetensors_header, or if it is shorter than its header requires.
  explicit SafetensorsFile(const std::filesystem::path& path);
};

}  // namespace attend
