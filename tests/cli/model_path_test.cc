// Values of --model-path: directories, models in the Hugging Face cache, and folders that are not models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/run_command.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

// Cache with the bundled model as acme/tiny, as `hf download` stores it, and without other variables of the
// cache.
class ModelInTheCache : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(home_);
    fs::create_directories(folder_ / "refs");
    fs::create_directories(folder_ / "snapshots");
    std::ofstream(folder_ / "refs" / "main") << "0123abc";
    fs::create_directory_symlink(kTinyModel, folder_ / "snapshots" / "0123abc");
  }
  void TearDown() override { fs::remove_all(home_); }

  static CommandResult run(const std::string& command, const std::string& variables) {
    return attend(command, Streams::kBoth,
                  "env -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u HF_HOME -u XDG_CACHE_HOME " + variables);
  }

  const fs::path home_ = fs::path(testing::TempDir()) / "attend_hf_home";
  const fs::path hub_ = home_ / "hub", folder_ = hub_ / "models--acme--tiny";
};

TEST_F(ModelInTheCache, RunsWithEveryCommand) {
  const std::string home = "HF_HOME=" + home_.string();
  for (const std::string command :
       {"generate -n 4 -p 'recall: sun=42, river=17, fox=80; river=' -m acme/tiny", "backends -m acme/tiny",
        "bench model --device cpu -p 8 -n 1 -r 1 -m acme/tiny", "chat acme/tiny < /dev/null",
        "chat -m acme/tiny < /dev/null"}) {
    const CommandResult ran = run(command, home);
    EXPECT_EQ(ran.exit_code, 0) << command << "\n" << ran.out;
  }
  EXPECT_THAT(run("generate -n 4 -p 'recall: sun=42, river=17; river=' -m acme/tiny", home).out,
              HasSubstr("17"));
}

TEST_F(ModelInTheCache, IsFoundByEachVariableOfTheCache) {
  fs::create_directories(home_ / "user" / ".cache");
  fs::create_directory_symlink(home_, home_ / "user" / ".cache" / "huggingface");
  for (const std::string& variables :
       {"HF_HUB_CACHE=" + hub_.string(), "HF_HOME=" + home_.string(), "HF_HOME='~' HOME=" + home_.string(),
        "XDG_CACHE_HOME=" + (home_ / "user" / ".cache").string(), "HOME=" + (home_ / "user").string(),
        "HF_HOME=/nowhere HF_HUB_CACHE=" + hub_.string()})
    EXPECT_EQ(run("backends -m acme/tiny", variables).exit_code, 0) << variables;
}

TEST_F(ModelInTheCache, IsHiddenByADirectoryOfItsName) {
  const CommandResult ran =
      attend("backends -m acme/tiny", Streams::kBoth,
             "cd " + home_.string() + " && mkdir -p acme/tiny && HF_HOME=" + home_.string());
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("acme/tiny/config.json: no such file"));
}

TEST_F(ModelInTheCache, IsRejectedWithoutASnapshotOfMain) {
  std::ofstream(folder_ / "refs" / "main") << "ffff";
  const CommandResult ran = run("backends -m acme/tiny", "HF_HOME=" + home_.string());
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr("no snapshot of the revision main: run `hf download acme/tiny`"));
}

TEST_F(ModelInTheCache, AbsentModelIsReportedWithTheCommandThatDownloadsIt) {
  for (const std::string command :
       {"generate -p x -m acme/large", "serve --port 0 acme/large", "chat -m acme/large",
        "embed -p x -m acme/large", "backends -m acme/large"}) {
    const CommandResult ran = run(command, "HF_HOME=" + home_.string());
    EXPECT_EQ(ran.exit_code, 2) << command;
    EXPECT_THAT(
        ran.out,
        HasSubstr("acme/large: no such directory, and no model of this name in the Hugging Face cache " +
                  hub_.string() + "; nothing is downloaded: run `hf download acme/large`"));
  }
}

TEST_F(ModelInTheCache, FoldersOfTheCacheAreNamed) {
  for (const auto& [folder, message] :
       {std::pair{home_, "(a Hugging Face cache: pass the name of a model, such as acme/tiny)"},
        {hub_, "(a Hugging Face cache: pass the name of a model, such as acme/tiny)"},
        {folder_, "(a model's folder of the Hugging Face cache: pass the model's name, acme/tiny)"},
        {folder_ / "snapshots", "(config.json is in its folder 0123abc)"}}) {
    const CommandResult ran = run("backends -m " + folder.string(), "HF_HOME=" + home_.string());
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.out, HasSubstr("no config.json: expected a model directory"));
    EXPECT_THAT(ran.out, HasSubstr(message));
  }
}

// Files of a folder, and the note about them.
struct OtherFolder {
  std::vector<std::string> files;
  std::string note;
};

class FolderThatIsNoModel : public testing::TestWithParam<OtherFolder> {};

TEST_P(FolderThatIsNoModel, IsReportedWithWhatItContains) {
  const fs::path folder = fs::path(testing::TempDir()) / "attend_other_folder";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const std::string& name : GetParam().files) {
    std::ofstream file(folder / name);
    if (name == "config.json") file << std::ifstream(kTinyModel + "/config.json").rdbuf();
    if (name == "tokenizer.json") file << std::ifstream(kTinyModel + "/tokenizer.json").rdbuf();
    if (name == "adapter_config.json") file << R"({"base_model_name_or_path": "acme/large"})";
  }
  const CommandResult ran = attend("generate -p x -m " + folder.string());
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.out, HasSubstr(GetParam().note));
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Folders, FolderThatIsNoModel,
    testing::Values(
        OtherFolder{{"adapter_config.json", "adapter_model.safetensors"},
                    "an adapter (LoRA) of \"acme/large\"; expected that model, and the adapter with "
                    "--lora-paths NAME=FOLDER"},
        OtherFolder{{"model-Q4_K_M.gguf"},
                    "no config.json: expected a model directory as Hugging Face has them, with "
                    "config.json, tokenizer.json and safetensors (model-Q4_K_M.gguf is there: "
                    "pass this file instead of the folder"},
        OtherFolder{
            {"config.json", "tokenizer.json", "model-Q4_K_M.gguf"},
            "expected model.safetensors or model.safetensors.index.json (model-Q4_K_M.gguf is there: pass"},
        OtherFolder{{"pytorch_model.bin"}, "(pytorch_model.bin is there: only safetensors are read"},
        OtherFolder{{"config.json", "tokenizer.json", "pytorch_model-00001-of-00002.bin"},
                    "(pytorch_model-00001-of-00002.bin is there: only safetensors are read; in Python,"},
        OtherFolder{{"config.json", "tokenizer.json", "model-00001-of-00002.safetensors"},
                    "(model-00001-of-00002.safetensors is there: the shards' index is missing"},
        OtherFolder{{"config.json", "tokenizer.json", "weights.safetensors"},
                    "(weights.safetensors is there: expected the name model.safetensors"},
        OtherFolder{{"params.json", "consolidated.safetensors"},
                    "(consolidated.safetensors is there: weights in Mistral's"},
        OtherFolder{{"params.json", "consolidated.00.pth"},
                    "(params.json is there: configs in the format of"},
        OtherFolder{{"model_index.json"}, "(model_index.json is there: a diffusion pipeline"},
        OtherFolder{{"config.json", "tokenizer.model"},
                    "no tokenizer.json (tokenizer.model is there: only tokenizer.json is read; in Python, "
                    "AutoTokenizer"}));

TEST(ModelPath, CorruptGgufFileIsRejected) {
  const CommandResult gguf = attend("generate -p x -m " + write_file("some.gguf", "GGUF"));
  EXPECT_EQ(gguf.exit_code, 2);
  EXPECT_THAT(gguf.out, HasSubstr("some.gguf: version at byte 4: 4 bytes: the file has 0 more"));
}

}  // namespace
}  // namespace attend
