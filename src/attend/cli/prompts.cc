#include "attend/cli/prompts.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "attend/base/error.h"

namespace attend::cli {
namespace {

Prompt parse_json_prompt(const std::string& line, const std::string& where) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object())
    fail(ErrorCode::kInvalidArgument, where, ": expected a JSON object with \"prompt\" or \"input_ids\"");
  Prompt prompt;
  const bool has_text = json.contains("prompt");
  const bool has_ids = json.contains("input_ids");
  // Files made for other checks carry both; the text is what a person would have typed.
  require(has_text || has_ids, where, ": expected \"prompt\" or \"input_ids\"");
  if (has_text) {
    require(json["prompt"].is_string(), where, ": \"prompt\" is ", json["prompt"].type_name(),
            ", expected a string");
    prompt.text = json["prompt"].get<std::string>();
  } else {
    const auto& ids = json["input_ids"];
    require(ids.is_array(), where, ": \"input_ids\" is ", ids.type_name(), ", expected an array of integers");
    for (const auto& id : ids) {
      require(id.is_number_integer() && id >= 0 && id <= INT32_MAX, where, ": \"input_ids\" holds ",
              id.dump(), ", expected token ids");
      prompt.input_ids.push_back(id.get<int32_t>());
    }
  }
  if (json.contains("answer")) {
    require(json["answer"].is_string(), where, ": \"answer\" is ", json["answer"].type_name(),
            ", expected a string");
    prompt.answer = json["answer"].get<std::string>();
  }
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) fail(ErrorCode::kNotFound, "prompts file ", path, ": can not be read");
  std::vector<Prompt> prompts;
  std::string line;
  bool json_lines = false;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (prompts.empty()) json_lines = line[line.find_first_not_of(" \t")] == '{';
    const std::string where = path.string() + ":" + std::to_string(number);
    prompts.push_back(json_lines ? parse_json_prompt(line, where) : Prompt{line, {}, std::nullopt});
  }
  require(!prompts.empty(), "prompts file ", path, ": no prompts");
  return prompts;
}

}  // namespace attend::cli
