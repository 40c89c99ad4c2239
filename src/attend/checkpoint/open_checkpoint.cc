#include "attend/checkpoint/checkpoint.h"
#include "attend/checkpoint/gguf/gguf_checkpoint.h"
#include "attend/checkpoint/hf/hf_checkpoint.h"

namespace attend {

std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  if (path.extension() == kGgufExtension) return std::make_unique<GgufCheckpoint>(path);
  return std::make_unique<HfCheckpoint>(path);
}

}  // namespace attend
