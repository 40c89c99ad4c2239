#include "attend/bench/model_shapes.h"

#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"

namespace attend::bench {
namespace {

using nlohmann::ordered_json;

struct Shape {
  const char* architecture;
  int layers, hidden, intermediate, vocab, q_heads, kv_heads, head_dim;
  bool tied;
};

const std::map<std::string, Shape>& shapes() {
  static const std::map<std::string, Shape> table = {
      {"llama-3.1-8b", {"LlamaForCausalLM", 32, 4096, 14336, 128256, 32, 8, 128, false}},
      {"llama-3.2-1b", {"LlamaForCausalLM", 16, 2048, 8192, 128256, 32, 8, 64, true}},
      {"qwen3-0.6b", {"Qwen3ForCausalLM", 28, 1024, 3072, 151936, 16, 8, 128, true}},
  };
  return table;
}

std::filesystem::path temporary_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  const char* wish = std::getenv("TMPDIR");
  require(!error, "TMPDIR ", wish != nullptr ? wish : "(not set)", ": ", error.message(),
          "; expected a directory to write a config.json to");
  return path;
}

}  // namespace

std::string shape_config(const std::string& shape) {
  const auto found = shapes().find(shape);
  if (found == shapes().end()) {
    std::string names;
    for (const auto& [name, values] : shapes()) names += (names.empty() ? "" : ", ") + name;
    fail(ErrorCode::kInvalidArgument, "--shape ", shape, ": expected one of ", names);
  }
  const Shape& s = found->second;
  const ordered_json config = {{"architectures", {s.architecture}},
                               {"num_hidden_layers", s.layers},
                               {"hidden_size", s.hidden},
                               {"intermediate_size", s.intermediate},
                               {"vocab_size", s.vocab},
                               {"num_attention_heads", s.q_heads},
                               {"num_key_value_heads", s.kv_heads},
                               {"head_dim", s.head_dim},
                               {"hidden_act", "silu"},
                               {"max_position_embeddings", 131072},
                               {"rms_norm_eps", 1e-5},
                               {"rope_theta", 500000.0},
                               {"tie_word_embeddings", s.tied},
                               {"torch_dtype", "bfloat16"}};
  return config.dump(2);
}

std::string with_num_layers(const std::string& config_json, int num_layers) {
  require(num_layers >= 1, "--num-layers ", num_layers, ": at least 1");
  ordered_json config = ordered_json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  require(config.is_object(), "config.json: not a JSON object");
  config["num_hidden_layers"] = num_layers;
  return config.dump(2);
}

ConfigDirectory::ConfigDirectory(const std::string& config_json) {
  std::string name = (temporary_directory() / "attend-bench-XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr, name, ": can not be made");
  path_ = name;
  std::ofstream(path_ / "config.json") << config_json;
}

ConfigDirectory::~ConfigDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace attend::bench
