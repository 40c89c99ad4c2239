#include "attend/checkpoint/adapter_folder.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "attend/base/error.h"
#include "attend/checkpoint/hf/safetensors.h"
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/tensor_files.h"

namespace attend {
namespace {

constexpr const char *kConfigFile = "adapter_config.json", *kTensorFile = "adapter_model.safetensors";

class AdapterTensors : public TensorFiles {
 public:
  explicit AdapterTensors(const std::filesystem::path& file) : TensorFiles(file) {
    files_.push_back(SafetensorsFile(file));
    for (const TensorEntry& entry : files_[0].entries()) tensor_file_.emplace(entry.name, 0);
  }
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    ensure(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1,
           "SHA-256 failed");
  }
  // The size is a part of the digest, so that different divisions of the same bytes differ.
  void add(const void* data, uint64_t num_bytes) {
    ensure(EVP_DigestUpdate(context_.get(), &num_bytes, sizeof(num_bytes)) == 1 &&
               EVP_DigestUpdate(context_.get(), data, num_bytes) == 1,
           "SHA-256 failed");
  }
  std::string digits() {
    std::array<uint8_t, 32> hash{};
    ensure(EVP_DigestFinal_ex(context_.get(), hash.data(), nullptr) == 1, "SHA-256 failed");
    std::string text;
    for (const uint8_t byte : hash) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string compute_digest(const std::string& config, const CheckpointTensors& tensors) {
  Sha256 hash;
  hash.add(config.data(), config.size());
  std::vector<std::string> names = tensors.names();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    hash.add(name.data(), name.size());
    const Tensor tensor = tensors.tensor(name);
    hash.add(tensor.view().data, tensor.view().num_bytes());
  }
  return hash.digits();
}

std::string read_config_text(const std::filesystem::path& path) {
  require_directory(path, "the folder of an adapter, as PEFT saves it");
  for (const char* name : {kConfigFile, kTensorFile})
    if (!file_exists(path / name))
      fail(ErrorCode::kNotFound, path.string(), ": no ", name, ": expected the folder of an adapter with ",
           kConfigFile, " and ", kTensorFile,
           file_exists(path / "adapter_model.bin")
               ? " (adapter_model.bin is there: load it with PEFT and save it with safe_serialization=True)"
               : "");
  return read_file(path / kConfigFile, kMaxJsonFileBytes);
}

}  // namespace

AdapterFolder::AdapterFolder(const std::filesystem::path& path)
    : AdapterFolder(path, read_config_text(path)) {}

AdapterFolder::AdapterFolder(const std::filesystem::path& path, const std::string& config)
    : path_(path),
      config_(parse_json(config, (path / kConfigFile).string()), (path / kConfigFile).string()),
      ordered_config_(parse_ordered_json(config, (path / kConfigFile).string())),
      tensors_(std::make_unique<AdapterTensors>(path / kTensorFile)),
      digest_(compute_digest(config, *tensors_)) {}

}  // namespace attend
