#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

#include "attend/model/loadable_model.h"
#include "attend/model/model.h"
#include "attend/model/weight_inventory.h"
#include "attend/model/weights/check_finite.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/test_files.h"

namespace attend {
namespace {

using test::bytes_of;
using test::expect_error;
using test::make_tensor;
using test::safetensors_bytes;
using test::TempDir;
using test::TestTensor;

constexpr int kHidden = 8, kIntermediate = 12, kVocab = 10;

std::string config_json(bool tied) {
  return R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 12,
             "max_position_embeddings": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
             "num_key_value_heads": 1, "vocab_size": 10, "torch_dtype": "float16", "tie_word_embeddings": )" +
         std::string(tied ? "true" : "false") + "}";
}

// Tensors of a Llama with this config, under the names of transformers.
std::vector<TestTensor> tiny_llama() {
  const std::string layer = "model.layers.0.";
  return {make_tensor("model.embed_tokens.weight", {kVocab, kHidden}),
          make_tensor(layer + "input_layernorm.weight", {kHidden}),
          make_tensor(layer + "self_attn.q_proj.weight", {8, kHidden}),
          make_tensor(layer + "self_attn.k_proj.weight", {4, kHidden}),
          make_tensor(layer + "self_attn.v_proj.weight", {4, kHidden}),
          make_tensor(layer + "self_attn.o_proj.weight", {kHidden, 8}),
          make_tensor(layer + "post_attention_layernorm.weight", {kHidden}),
          make_tensor(layer + "mlp.gate_proj.weight", {kIntermediate, kHidden}),
          make_tensor(layer + "mlp.up_proj.weight", {kIntermediate, kHidden}),
          make_tensor(layer + "mlp.down_proj.weight", {kHidden, kIntermediate}),
          make_tensor("model.norm.weight", {kHidden}),
          make_tensor("lm_head.weight", {kVocab, kHidden})};
}

std::vector<TestTensor> without(std::vector<TestTensor> tensors, std::string_view name) {
  std::erase_if(tensors, [&](const TestTensor& tensor) { return tensor.name == name; });
  return tensors;
}

std::vector<TestTensor> replaced(std::vector<TestTensor> tensors, const TestTensor& by) {
  tensors = without(std::move(tensors), by.name);
  tensors.push_back(by);
  return tensors;
}

size_t bytes_of_all(const std::vector<TestTensor>& tensors) {
  size_t bytes = 0;
  for (const TestTensor& tensor : tensors) bytes += tensor.data.size();
  return bytes;
}

std::unique_ptr<Model> load(const std::vector<TestTensor>& tensors, bool tied = false,
                            const LoadProgress& progress = {}) {
  const TempDir dir;
  dir.write("config.json", config_json(tied));
  dir.write("model.safetensors", safetensors_bytes(tensors));
  return load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto, progress);
}

TEST(LoadModel, LoadsEveryTensorAndReportsProgress) {
  size_t done = 0, total = 0, calls = 0;
  const auto model = load(tiny_llama(), false, [&](size_t now, size_t all) {
    EXPECT_GT(now, done);
    done = now;
    total = all;
    ++calls;
  });
  EXPECT_EQ(model->weight_bytes(), bytes_of_all(tiny_llama()));
  EXPECT_EQ(done, model->weight_bytes());
  EXPECT_EQ(total, model->weight_bytes());
  EXPECT_EQ(calls, tiny_llama().size());
  EXPECT_EQ(model->spec().architecture, "LlamaForCausalLM");
}

TEST(LoadModel, LoadsTensorsFromMemory) {
  test::MemoryCheckpoint checkpoint;
  checkpoint.config_text = config_json(false);
  for (const TestTensor& stored : tiny_llama()) {
    const Tensor copy = Tensor::empty({static_cast<int64_t>(stored.data.size())}, DType::kU8);
    std::memcpy(copy.view().data, stored.data.data(), stored.data.size());
    checkpoint.tensors.emplace(
        stored.name,
        Tensor(TensorView::contiguous(copy.view().data, DType::kF16, stored.shape), copy.storage()));
  }
  const ModelSpec spec = read_config(checkpoint);
  EXPECT_EQ(spec.architecture, "LlamaForCausalLM");
  EXPECT_TRUE(read_kv_scales(*checkpoint.open_tensors(), spec).empty());
  EXPECT_EQ(load_model(checkpoint.open_tensors(), spec, {}, {})->weight_bytes(), bytes_of_all(tiny_llama()));
}

// Writes a sparse file: only its header takes space on the disk, its tensors are zeros.
void write_sparse(const TempDir& dir, const std::vector<TestTensor>& tensors, const std::string& large,
                  int64_t rows) {
  std::string header;
  size_t end = 0;
  for (const TestTensor& tensor : tensors) {
    std::vector<int64_t> shape = tensor.shape;
    if (tensor.name == large) shape[0] = rows;
    const size_t begin = end;
    end += tensor.data.size() / static_cast<size_t>(tensor.shape[0]) * static_cast<size_t>(shape[0]);
    header += (header.empty() ? "{\"" : ", \"") + tensor.name + "\": {\"dtype\": \"" + tensor.dtype +
              "\", \"shape\": [" + std::to_string(shape[0]) +
              (shape.size() > 1 ? ", " + std::to_string(shape[1]) : "") + "], \"data_offsets\": [" +
              std::to_string(begin) + ", " + std::to_string(end) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const auto file = dir.write("model.safetensors", safetensors_bytes(header, ""));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) + end);
}

// Memory of this process that is not mapped from a file.
size_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssAnon:") {
      size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

// Uses a sparse file, since a large checkpoint would not fit on the disk.
TEST(LoadModel, MapsALargeFileWithoutCopiesAndReportsProgress) {
  constexpr int64_t kRows = int64_t{1} << 24;
  const TempDir dir;
  std::string config = config_json(true);
  config.replace(config.find("\"vocab_size\": 10"), 16, "\"vocab_size\": " + std::to_string(kRows));
  dir.write("config.json", config);
  write_sparse(dir, without(tiny_llama(), "lm_head.weight"), "model.embed_tokens.weight", kRows);
  size_t done = 0, total = 0, calls = 0;
  const size_t before = anonymous_bytes();
  const auto model =
      load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto, [&](size_t now, size_t all) {
        EXPECT_GT(now, done);
        done = now;
        total = all;
        ++calls;
      });
  const size_t large_bytes = static_cast<size_t>(kRows) * kHidden * 2;
  EXPECT_GT(done, large_bytes);
  EXPECT_EQ(done, total);
  EXPECT_GT(calls, 2 * tiny_llama().size()) << "progress must be reported within large tensors";
  EXPECT_LT(anonymous_bytes(), before + large_bytes / 8);
  ASSERT_GT(before, 0u) << "/proc/self/status has no RssAnon";
}

TEST(LoadModel, RejectsEachMissingTensorByName) {
  for (const TestTensor& tensor : tiny_llama())
    expect_error(ErrorCode::kNotFound, {"\"" + tensor.name + "\""},
                 [&] { load(without(tiny_llama(), tensor.name)); });
}

TEST(LoadModel, RejectsAFileWithFewerLayersThanItsConfig) {
  const TempDir dir;
  std::string config = config_json(false);
  config.replace(config.find("\"num_hidden_layers\": 1"), 22, "\"num_hidden_layers\": 3");
  dir.write("config.json", config);
  dir.write("model.safetensors", safetensors_bytes(tiny_llama()));
  expect_error(ErrorCode::kNotFound,
               {"no tensor \"model.layers.1.input_layernorm.weight\" and 17 more",
                "LlamaForCausalLM with num_hidden_layers 3 in config.json needs 30"},
               [&] { load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto); });
}

TEST(LoadModel, RejectsATensorOfAnotherShapeBeforeReadingWeights) {
  for (const TestTensor& tensor : tiny_llama()) {
    std::vector<int64_t> longer = tensor.shape, deeper = tensor.shape;
    ++longer[0];
    deeper.push_back(1);
    for (const std::vector<int64_t>& shape : {longer, deeper})
      expect_error(ErrorCode::kCorruptFile,
                   {"model.safetensors: tensor \"" + tensor.name + "\": shape [" + std::to_string(shape[0]),
                    "expected [" + std::to_string(tensor.shape[0]), "config.json"},
                   [&] {
                     load(replaced(tiny_llama(), make_tensor(tensor.name, shape)), false,
                          [](size_t, size_t) { FAIL() << "weights were read before the error"; });
                   });
  }
}

TEST(LoadModel, RejectsANonFloatDtype) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  expect_error(ErrorCode::kUnsupported, {name, "int32", "float32, float16, bfloat16"}, [&] {
    load(replaced(tiny_llama(), {name, "I32", {kIntermediate, kHidden}, std::string(4 * 96, '\0')}));
  });
  expect_error(ErrorCode::kUnsupported, {name, "fp8_e4m3", "float32, float16, bfloat16"}, [&] {
    load(replaced(tiny_llama(), {name, "F8_E4M3", {kIntermediate, kHidden}, std::string(96, '\0')}));
  });
  expect_error(ErrorCode::kUnsupported, {name, "int8", "float32, float16, bfloat16"}, [&] {
    load(replaced(tiny_llama(), {name, "I8", {kIntermediate, kHidden}, std::string(96, '\0')}));
  });
  expect_error(ErrorCode::kUnsupported, {name, "I16", "BF16"}, [&] {
    load(replaced(tiny_llama(), {name, "I16", {kIntermediate, kHidden}, std::string(192, '\0')}));
  });
}

TEST(LoadModel, SupportsMixedDtypes) {
  const TestTensor norm = make_tensor("model.norm.weight", {kHidden}, "F32");
  const TestTensor embedding = make_tensor("model.embed_tokens.weight", {kVocab, kHidden}, "BF16");
  EXPECT_EQ(load(replaced(replaced(tiny_llama(), norm), embedding))->weight_bytes(),
            bytes_of_all(tiny_llama()) + 2 * kHidden);
}

TEST(LoadModel, RejectsANonFiniteValueAnywhere) {
  struct Format {
    std::string dtype;
    uint32_t nan, infinity, largest;
  };
  for (const Format& format :
       {Format{"F32", 0xff800001u, 0x7f800000u, 0x7f7fffffu}, Format{"F16", 0xfc01u, 0xfc00u, 0x7bffu},
        Format{"BF16", 0x7fffu, 0xff80u, 0xff7fu}})
    for (const size_t at : {size_t{0}, size_t{17}, size_t{kHidden * kIntermediate - 1}}) {
      TestTensor bad =
          make_tensor("model.layers.0.mlp.down_proj.weight", {kHidden, kIntermediate}, format.dtype);
      const size_t word_bytes = bad.data.size() / (kHidden * kIntermediate);
      const auto set = [&](uint32_t bits) {
        std::memcpy(bad.data.data() + at * word_bytes, &bits, word_bytes);
      };
      const std::string element = "down_proj.weight\": element " + std::to_string(at);
      set(format.nan);
      expect_error(ErrorCode::kCorruptFile, {"model.safetensors: tensor", element + " is NaN"},
                   [&] { load(replaced(tiny_llama(), bad)); });
      set(format.infinity);
      expect_error(ErrorCode::kCorruptFile, {element + " is infinite: expected finite numbers"},
                   [&] { load(replaced(tiny_llama(), bad)); });
      set(format.largest);
      load(replaced(tiny_llama(), bad));
    }
}

TEST(LoadModel, FindsASingleNonFiniteValue) {
  constexpr int64_t kElements = 3'000'001;
  const Tensor tensor = Tensor::empty({kElements}, DType::kBF16);
  std::fill_n(tensor.as<BF16>(), kElements, BF16(1.0f));
  check_finite(tensor, "all fine");
  for (const int64_t at : {int64_t{0}, int64_t{262144}, int64_t{2'000'000}, kElements - 1}) {
    tensor.as<BF16>()[at] = BF16::from_bits(0x7f80);
    expect_error(ErrorCode::kCorruptFile, {"tensor w: element " + std::to_string(at) + " is infinite"},
                 [&] { check_finite(tensor, "tensor w"); });
    tensor.as<BF16>()[at] = BF16(1.0f);
  }
}

TEST(LoadModel, DetectsAShardModifiedDuringLoading) {
  const TempDir dir;
  dir.write("config.json", config_json(false));
  std::string index = R"({"weight_map": {)";
  std::vector<TestTensor> first, second;
  for (const TestTensor& tensor : tiny_llama()) {
    const bool last = tensor.name == "lm_head.weight";
    (last ? second : first).push_back(tensor);
    index += "\"" + tensor.name + (last ? "\": \"2.safetensors\"}}" : "\": \"1.safetensors\", ");
  }
  dir.write("model.safetensors.index.json", index);
  const auto shard = dir.write("1.safetensors", safetensors_bytes(first));
  dir.write("2.safetensors", safetensors_bytes(second));
  const auto load_and_write = [&](bool write) {
    return load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto, [&](size_t done, size_t total) {
      if (write && done == total)
        std::filesystem::last_write_time(shard,
                                         std::filesystem::last_write_time(shard) + std::chrono::seconds(1));
    });
  };
  load_and_write(false);
  expect_error(ErrorCode::kCorruptFile, {"1.safetensors: the file was modified", "not modified"},
               [&] { load_and_write(true); });
}

TEST(LoadModel, DetectsAFileModifiedAfterLoading) {
  const TempDir dir;
  dir.write("config.json", config_json(false));
  const auto file = dir.write("model.safetensors", safetensors_bytes(tiny_llama()));
  const auto model = load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto);
  model->check_weights();
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));
  expect_error(ErrorCode::kCorruptFile, {"model.safetensors: the file was modified"},
               [&] { model->check_weights(); });
}

std::vector<TestTensor> with_more(const std::vector<std::string>& names) {
  std::vector<TestTensor> tensors = tiny_llama();
  for (const std::string& name : names) tensors.push_back(make_tensor(name, {kHidden}));
  return tensors;
}

TEST(LoadModel, RejectsUnusedLayerTensors) {
  const auto no_progress = [](size_t, size_t) { FAIL() << "weights were read before the error"; };
  // The norm of q belongs to Qwen 3; the config has no bias.
  for (const char* part : {"self_attn.q_norm.weight", "self_attn.q_proj.bias"}) {
    const std::string name = std::string("model.layers.0.") + part;
    expect_error(ErrorCode::kCorruptFile,
                 {"model.safetensors: tensor \"" + name + "\": LlamaForCausalLM has no such tensor",
                  "expected input_layernorm.weight, self_attn.q_proj.weight"},
                 [&] { load(with_more({name}), false, no_progress); });
  }
  expect_error(ErrorCode::kCorruptFile,
               {"\"model.layers.1.input_layernorm.weight\"", "config.json", "expected layers 0 to 0"},
               [&] { load(with_more({"model.layers.1.input_layernorm.weight"}), false, no_progress); });
}

TEST(LoadModel, RejectsQuantizedWeightsWithoutAConfig) {
  const std::string mlp = "model.layers.0.mlp.";
  std::vector<TestTensor> packed = without(tiny_llama(), mlp + "up_proj.weight");
  packed.push_back(
      {mlp + "up_proj.qweight", "I32", {1, kIntermediate}, std::string(4 * kIntermediate, '\0')});
  expect_error(ErrorCode::kCorruptFile, {"up_proj.qweight", "expected a quantization_config in config.json"},
               [&] { load(packed); });
  for (const char* const scale :
       {"down_proj.weight_scale", "experts.down_proj_weight_scale", "experts.down_proj_scale_inv"}) {
    std::vector<TestTensor> scaled = tiny_llama();
    scaled.push_back(make_tensor(mlp + scale, {1}));
    expect_error(ErrorCode::kCorruptFile, {scale, "quantization_config"}, [&] { load(scaled); });
  }
}

// down_proj in the packing of GPTQ, other weights unquantized.
std::vector<TestTensor> gptq_llama() {
  const std::string mlp = "model.layers.0.mlp.";
  std::vector<TestTensor> tensors = without(tiny_llama(), mlp + "down_proj.weight");
  tensors = replaced(tensors, make_tensor(mlp + "gate_proj.weight", {32, kHidden}));
  tensors = replaced(tensors, make_tensor(mlp + "up_proj.weight", {32, kHidden}));
  tensors.push_back({mlp + "down_proj.qweight", "I32", {4, kHidden}, std::string(4 * 4 * kHidden, '\0')});
  tensors.push_back({mlp + "down_proj.qzeros", "I32", {1, 1}, std::string(4, '\0')});
  tensors.push_back(make_tensor(mlp + "down_proj.scales", {1, kHidden}));
  return tensors;
}
TEST(LoadModel, WarnsAboutAQuantizationConfigWithoutQuantizedWeights) {
  const TempDir dir;
  std::string config = config_json(false);
  config.pop_back();
  dir.write("config.json", config + R"(, "quantization_config": {"quant_method": "fp8"}})");
  dir.write("model.safetensors", safetensors_bytes(tiny_llama()));
  testing::internal::CaptureStderr();
  load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto);
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "has a quantization_config for fp8 (fp8), but no weight in the files is quantized"),
            std::string::npos);
}

// Copies a golden and renames the tensors with this prefix.
void copy_without(const std::string& golden, const std::string& first, const TempDir& dir) {
  const auto from = std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/goldens" / golden;
  std::ifstream file(from / "model.safetensors", std::ios::binary);
  std::string weights(std::istreambuf_iterator<char>(file), {});
  std::string other = first;
  other[other.size() - 2] = '9';
  for (size_t at = 0; (at = weights.find(first, at)) != std::string::npos;)
    weights.replace(at, other.size(), other);
  std::filesystem::copy(from / "config.json", dir.path());
  dir.write("model.safetensors", weights);
}

TEST(LoadModel, NamesAMissingTensorAsTheCheckpointWould) {
  const auto expect_missing = [](const std::string& golden, const std::string& stem,
                                 const std::string& tensor) {
    const TempDir dir;
    copy_without(golden, stem, dir);
    expect_error(ErrorCode::kNotFound, {"no tensor \"" + stem + tensor + "\""},
                 [&] { load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto); });
  };
  expect_missing("llama4-fp8-by-expert", "model.layers.0.feed_forward.experts.0.", "gate_proj.weight_scale");
  expect_missing("mixtral-awq", "model.layers.0.block_sparse_moe.experts.1.", "w1.qweight");
  expect_missing("ministral3-fp8-tensor", "model.layers.0.self_attn.k_proj.", "weight_scale_inv");
}

void write_gptq_llama(const TempDir& dir, const std::vector<TestTensor>& tensors, bool tied = false) {
  std::string config = config_json(tied);
  config.replace(config.find("12"), 2, R"(32, "quantization_config": {"quant_method": "gptq", "bits": 4})");
  dir.write("config.json", config);
  dir.write("model.safetensors", safetensors_bytes(tensors));
}

TEST(LoadModel, CountsCopiedQuantizedWeights) {
  const TempDir dir;
  write_gptq_llama(dir, gptq_llama());
  const ModelSpec spec = read_config(dir.path());
  EXPECT_EQ(WeightInventory(spec, open_checkpoint(dir.path() / "no files").get()).copied_bytes(), 0u);
  EXPECT_GE(WeightInventory(spec, open_checkpoint(dir.path()).get()).copied_bytes(),
            size_t{32} * kHidden / 2 + kHidden * sizeof(F16));
}

// A separate head tensor overrides a config that ties the head to the embedding, as for unquantized weights.
TEST(LoadModel, AcceptsAQuantizedHeadOfATiedModel) {
  std::vector<TestTensor> tensors = without(gptq_llama(), "lm_head.weight");
  const TempDir tied;
  write_gptq_llama(tied, tensors, true);
  EXPECT_NO_THROW(load_model(tied.path(), read_config(tied.path()), LoadFormat::kAuto));
  tensors.push_back({"lm_head.qweight", "I32", {1, kVocab}, std::string(4 * kVocab, '\0')});
  const TempDir own;
  write_gptq_llama(own, tensors, true);
  expect_error(ErrorCode::kNotFound, {"no tensor \"lm_head.qzeros\""},
               [&] { load_model(own.path(), read_config(own.path()), LoadFormat::kAuto); });
}

TEST(LoadModel, IgnoresZeroBiasesOfOldGptqFiles) {
  std::vector<TestTensor> tensors = gptq_llama();
  tensors.push_back(make_tensor("model.layers.0.mlp.down_proj.bias", {kHidden}));
  const auto load_gptq = [&] {
    const TempDir dir;
    write_gptq_llama(dir, tensors);
    return load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto);
  };
  EXPECT_NO_THROW(load_gptq());
  tensors.back().data[3] = '\x3c';  // 1
  expect_error(ErrorCode::kCorruptFile, {"down_proj.bias", "has no such tensor"}, load_gptq);
}

TEST(LoadModel, WarnsOnceAboutTensorsOutsideTheLayers) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(load(with_more({"vision_tower.encoder.a", "vision_tower.encoder.b", "mtp.norm.weight", "scale",
                            "model.layers.0.self_attn.rotary_emb.inv_freq"}))
                ->weight_bytes(),
            bytes_of_all(tiny_llama()));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(
      log.find("LlamaForCausalLM does not use are not loaded: mtp.norm, scale, vision_tower.encoder (2)\n"),
      std::string::npos)
      << log;
}

// The tiny Llama as the text model of a Gemma 3, with other prefixes of tensor names.
std::vector<TestTensor> tiny_gemma3(const std::string& prefix) {
  std::vector<TestTensor> tensors;
  for (TestTensor tensor : without(tiny_llama(), "lm_head.weight")) {
    tensor.name = prefix + tensor.name.substr(std::string("model.").size());
    tensors.push_back(tensor);
  }
  const std::string layer = prefix + "layers.0.";
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"})
    tensors.push_back(make_tensor(layer + norm + ".weight", {kHidden}));
  for (const char* norm : {"q_norm", "k_norm"})
    tensors.push_back(make_tensor(layer + "self_attn." + norm + ".weight", {4}));
  return tensors;
}

TEST(LoadModel, FindsTheTextModelOfAMultimodalModelUnderEachPrefix) {
  for (const char* prefix : {"language_model.model.", "model.language_model.", "model."}) {
    const TempDir dir;
    dir.write("config.json",
              R"({"architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "float16",
      "text_config": {"hidden_size": 8, "intermediate_size": 12, "head_dim": 4, "num_attention_heads": 2,
                      "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 10}})");
    const auto load_it = [&](std::vector<TestTensor> tensors) {
      dir.write("model.safetensors", safetensors_bytes(tensors));
      return load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto);
    };
    // Norms are converted to float32.
    constexpr size_t kNormBytes = (5 * kHidden + 2 * 4) * 2;
    EXPECT_EQ(load_it(tiny_gemma3(prefix))->weight_bytes(), bytes_of_all(tiny_gemma3(prefix)) + kNormBytes);
    // The head has its own prefix.
    std::vector<TestTensor> with_head = tiny_gemma3(prefix);
    const bool is_published = std::string_view(prefix).starts_with("language_model.");
    with_head.push_back(
        make_tensor(is_published ? "language_model.lm_head.weight" : "lm_head.weight", {kVocab, kHidden}));
    EXPECT_EQ(load_it(with_head)->weight_bytes(), bytes_of_all(with_head) + kNormBytes);
    const std::string absent = std::string(prefix) + "layers.0.self_attn.q_norm.weight";
    expect_error(ErrorCode::kNotFound, {"\"" + absent + "\""},
                 [&] { load_it(without(tiny_gemma3(prefix), absent)); });
    std::vector<TestTensor> more = tiny_gemma3(prefix);
    more.push_back(make_tensor(std::string(prefix) + "layers.0.gate.weight", {kHidden}));
    expect_error(ErrorCode::kCorruptFile, {"layers.0.gate.weight", "no such tensor"}, [&] { load_it(more); });
  }
}

// A Qwen3-MoE with one layer. Its config has two experts, its file `num_experts`.
std::unique_ptr<Model> load_experts(int num_experts, std::string_view missing = "") {
  const std::string layer = "model.layers.0.";
  std::vector<TestTensor> tensors = tiny_llama();
  for (const char* name : {"gate", "up", "down"})
    tensors = without(tensors, layer + "mlp." + name + "_proj.weight");
  for (const char* name : {"q", "k"})
    tensors.push_back(make_tensor(layer + "self_attn." + name + "_norm.weight", {4}));
  tensors.push_back(make_tensor(layer + "mlp.gate.weight", {2, kHidden}));
  for (int expert = 0; expert < num_experts; ++expert) {
    const std::string name = layer + "mlp.experts." + std::to_string(expert) + ".";
    tensors.push_back(make_tensor(name + "gate_proj.weight", {6, kHidden}));
    tensors.push_back(make_tensor(name + "up_proj.weight", {6, kHidden}));
    tensors.push_back(make_tensor(name + "down_proj.weight", {kHidden, 6}));
  }
  const TempDir dir;
  dir.write("config.json",
            R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8, "max_position_embeddings": 32,
                "num_attention_heads": 2, "num_hidden_layers": 1, "num_key_value_heads": 1, "vocab_size": 10,
                "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 6})");
  dir.write("model.safetensors", safetensors_bytes(without(tensors, missing)));
  return load_model(dir.path(), read_config(dir.path()), LoadFormat::kAuto);
}

TEST(LoadModel, RejectsFilesWithMoreOrFewerExpertsThanTheConfig) {
  EXPECT_EQ(load_experts(2)->weight_bytes(),
            bytes_of_all(tiny_llama()) +
                2 * (2 * 4 + 2 * kHidden + 2 * 3 * 6 * kHidden - 3 * kHidden * kIntermediate));
  expect_error(ErrorCode::kNotFound, {"model.layers.0.mlp.experts.1.gate_proj.weight"},
               [] { load_experts(1); });
  expect_error(ErrorCode::kNotFound, {"model.layers.0.mlp.experts.0.down_proj.weight"},
               [] { load_experts(2, "model.layers.0.mlp.experts.0.down_proj.weight"); });
  expect_error(ErrorCode::kCorruptFile,
               {"model.layers.0.mlp.experts.2.down_proj.weight", "no such tensor according to config.json",
                "mlp.gate.weight, mlp.experts.0.gate_proj.weight to mlp.experts.1.up_proj.weight, "
                "mlp.experts.0.down_proj.weight"},
               [] { load_experts(3); });
}

TEST(LoadModel, CountsTheBytesOfExperts) {
  EXPECT_EQ(load_experts(2)->expert_bytes(), size_t{2} * 2 * 3 * 6 * kHidden);
  EXPECT_EQ(load(tiny_llama())->expert_bytes(), 0u);
}

TEST(LoadModel, TiedEmbeddingsRequireNoLmHead) {
  const auto tensors = without(tiny_llama(), "lm_head.weight");
  EXPECT_EQ(load(tensors, true)->weight_bytes(), bytes_of_all(tensors)) << "the shared tensor counts once";
}

TEST(LoadModel, LmHeadTensorOverridesTying) {
  EXPECT_EQ(load(tiny_llama(), true)->weight_bytes(), bytes_of_all(tiny_llama()));
}

TEST(LoadModel, RejectsAnUnknownArchitecture) {
  ModelSpec config;
  config.architecture = "MambaForCausalLM";
  expect_error(ErrorCode::kUnsupported, {"MambaForCausalLM", "needs Mamba-1 layers"},
               [&] { load_model("nowhere", config, LoadFormat::kDummy); });
}

TEST(LoadModel, DummyWeightsRequireOnlyTheConfig) {
  const TempDir dir;
  dir.write("config.json", config_json(false));
  size_t done = 0, total = 1;
  const auto model = load_model(dir.path(), read_config(dir.path()), LoadFormat::kDummy,
                                [&](size_t now, size_t all) { done = now, total = all; });
  EXPECT_EQ(model->weight_bytes(), bytes_of_all(tiny_llama()));
  EXPECT_EQ(done, total);
}

}  // namespace
}  // namespace attend
