#include "tests/text/tokenizer/golden.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attend::testing {
namespace {

using nlohmann::json;

std::vector<json> read_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("can not open " + path);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

std::string data_folder() { return std::string(ATTEND_SOURCE_DIR) + "/tests/data/tokenizers"; }

}  // namespace

const std::vector<std::string>& golden_layouts() {
  static const std::vector<std::string> kLayouts = {
      "llama3",  "qwen2", "gpt2",      "roberta", "o200k", "deepseek",   "llama2",
      "mistral", "gemma", "metaspace", "words",   "bert",  "bert_cased", "xlm_roberta"};
  return kLayouts;
}

std::string golden_folder(const std::string& layout) { return data_folder() + "/" + layout; }

const std::vector<std::string>& golden_texts() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (const json& line : read_lines(data_folder() + "/texts.jsonl"))
      texts.push_back(line.get<std::string>());
    return texts;
  }();
  return kTexts;
}

Golden read_golden(const std::string& layout) {
  const std::vector<json> lines = read_lines(golden_folder(layout) + "/golden.jsonl");
  Golden golden;
  golden.before = lines.at(0).at("before").get<std::vector<int32_t>>();
  golden.after = lines.at(0).at("after").get<std::vector<int32_t>>();
  for (size_t i = 1; i < lines.size(); ++i) {
    const json& line = lines[i];
    GoldenCase one;
    one.encodes = line.contains("i") || line.contains("text");
    if (line.contains("i")) one.text = golden_texts().at(line["i"].get<size_t>());
    if (line.contains("text")) one.text = line["text"].get<std::string>();
    one.ids = line.at("ids").get<std::vector<int32_t>>();
    one.skip = line.value("skip", one.text);
    one.keep = line.value("keep", one.skip);
    golden.cases.push_back(std::move(one));
  }
  return golden;
}

std::vector<StreamCase> read_stream_cases(const std::string& layout) {
  std::vector<StreamCase> cases;
  for (const json& line : read_lines(golden_folder(layout) + "/stream.jsonl")) {
    StreamCase one;
    one.prompt = line.at("prompt").get<std::vector<int32_t>>();
    one.ids = line.at("new").get<std::vector<int32_t>>();
    one.skip = line.value("skip", true);
    one.chunks = line.at("chunks").get<std::vector<std::string>>();
    one.rest = line.value("rest", std::vector<std::string>(one.ids.size()));
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace attend::testing
