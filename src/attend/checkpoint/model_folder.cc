#include "attend/checkpoint/model_folder.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "attend/base/error.h"
#include "attend/checkpoint/hf/hub_cache.h"
#include "attend/checkpoint/json.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEntries = 4096;

using Names = std::vector<std::string>;

// Names of the directory's entries, sorted; the first kMaxEntries of a larger one.
Names names_in(const fs::path& directory) {
  Names names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end;
       !error && entry != end && names.size() < kMaxEntries; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// `pattern`: a name, or the start and the end of one with * between them.
bool matches(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return name == pattern;
  const std::string_view start = pattern.substr(0, star), end = pattern.substr(star + 1);
  return name.size() >= start.size() + end.size() && name.starts_with(start) && name.ends_with(end);
}

bool contains(const Names& names, std::string_view name) { return std::ranges::binary_search(names, name); }

constexpr unsigned bit(MissingFile file) { return 1U << static_cast<unsigned>(file); }

struct Row {
  std::string_view pattern;
  unsigned missing;  // bits of MissingFile
  std::string_view sentence;
};

using enum MissingFile;
constexpr std::string_view kToSafetensors =
                               "only safetensors are read; in Python, "
                               "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(FOLDER) "
                               "writes them",
                           kToTokenizer =
                               "only tokenizer.json is read; in Python, "
                               "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes it";
constexpr Row kRows[] = {
    {"*.gguf", bit(kConfig) | bit(kWeights) | bit(kTokenizer) | bit(kChatTemplate),
     "pass this file instead of the folder to run it"},
    {"model_index.json", bit(kConfig), "a diffusion pipeline; only language models are supported"},
    {"consolidated*.safetensors", bit(kConfig) | bit(kWeights),
     "weights in Mistral's own format are not read; `hf download` the model's other files too"},
    {"params.json", bit(kConfig), "configs in the format of Llama's and Mistral's own code are not read"},
    {"pytorch_model*.bin", bit(kConfig) | bit(kWeights), kToSafetensors},
    {"pytorch_model.bin.index.json", bit(kConfig) | bit(kWeights), kToSafetensors},
    {"*.bin", bit(kWeights), kToSafetensors},
    {"*.pth", bit(kConfig) | bit(kWeights),
     "only safetensors are read; `hf download` the model in Hugging Face's format"},
    {"*.pt", bit(kConfig) | bit(kWeights),
     "only safetensors are read; `hf download` the model in Hugging Face's format"},
    {"tf_model.h5", bit(kWeights), "weights of TensorFlow are not read; expected safetensors"},
    {"flax_model.msgpack", bit(kWeights), "weights of Flax are not read; expected safetensors"},
    {"*.onnx", bit(kConfig) | bit(kWeights), "ONNX is not read; expected safetensors"},
    {"model-*.safetensors", bit(kWeights), "the shards' index is missing; `hf download` completes the model"},
    {"*.safetensors", bit(kWeights), "expected the name model.safetensors, or an index of shards"},
    {"tokenizer.model", bit(kTokenizer), kToTokenizer},
    {"spiece.model", bit(kTokenizer), kToTokenizer},
    {"*.tiktoken", bit(kTokenizer), kToTokenizer},
    {"vocab.json", bit(kTokenizer), kToTokenizer},
    {"vocab.txt", bit(kTokenizer), kToTokenizer},
};

// Returns the model that an adapter belongs to, in quotes, or "its model".
std::string base_model(const fs::path& directory) {
  try {
    if (const auto base = JsonNode::read(directory / "adapter_config.json").find("base_model_name_or_path"))
      return excerpt(base->value());
  } catch (const Error&) {
    // The note is about the folder, not about this file.
  }
  return "its model";
}

std::string list(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Explains folders of the Hugging Face cache, adapters, and folders that contain models.
std::string explain_folder(const fs::path& directory, const Names& names) {
  constexpr size_t kMaxNamed = 5;
  if (contains(names, "adapter_config.json"))
    return "adapter_config.json is there: an adapter (LoRA) of " + base_model(directory) +
           "; expected that model, and the adapter with --lora-paths NAME=FOLDER";
  if (contains(names, "snapshots") && contains(names, "refs")) {
    const std::string model = cached_model_name(directory.filename().string());
    return "a model's folder of the Hugging Face cache: pass " +
           (model.empty() ? "a folder of its snapshots/" : "the model's name, " + model);
  }
  for (const fs::path& cache : {directory, directory / "hub"})
    if (const Names models = cached_models(cache, kMaxNamed); !models.empty())
      return "a Hugging Face cache: pass the name of a model, such as " + list(models);
  Names models;
  std::error_code error;
  for (const std::string& name : names)
    if (models.size() < kMaxNamed && fs::exists(directory / name / "config.json", error))
      models.push_back(name);
  return models.empty() ? "" : "config.json is in its folder " + list(models);
}

}  // namespace

std::string note_on_missing(MissingFile missing, const fs::path& directory) {
  const Names names = names_in(directory);
  if (missing == MissingFile::kConfig)
    if (const std::string note = explain_folder(directory, names); !note.empty()) return " (" + note + ")";
  for (const Row& row : kRows) {
    if ((row.missing & bit(missing)) == 0) continue;
    for (const std::string& name : names)
      if (matches(name, row.pattern)) return " (" + name + " is there: " + std::string(row.sentence) + ")";
  }
  return {};
}

}  // namespace attend
