#include "attend/cli/prompts.h"

#include <fstream>

#include "attend/base/error.h"
#include "attend/model/json.h"
#include "attend/model/tokenizer/utf8.h"

namespace attend::cli {
namespace {

// What some editors put before UTF-8 text.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

Prompt parse_json_prompt(const std::string& line, const std::string& where) {
  const Json json = parse_json(line, where);
  require(json.is_object(), where, ": ", excerpt(json),
          ", expected an object with \"prompt\" or \"input_ids\"");
  Prompt prompt;
  require(!json.contains("prompt") || !json.contains("input_ids"), where,
          ": has \"prompt\" and \"input_ids\": expected one of them");
  if (json.contains("prompt")) {
    require(json["prompt"].is_string(), where, ": \"prompt\" is ", json["prompt"].type_name(),
            ", expected a string");
    prompt.text = json["prompt"].get<std::string>();
  } else {
    require(json.contains("input_ids"), where, ": expected \"prompt\" or \"input_ids\"");
    const Json& ids = json["input_ids"];
    require(ids.is_array() && !ids.empty(), where, ": \"input_ids\" is ", excerpt(ids),
            ", expected an array of token ids, at least one");
    for (const Json& id : ids) {
      require(id.is_number_integer() && id >= 0 && id <= INT32_MAX, where, ": \"input_ids\" holds ",
              excerpt(id), ", expected token ids from 0");
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

// A line of text; other encodings and binary files are not guessed at.
void check_text(const std::string& line, const std::string& where) {
  if (const size_t nul = line.find('\0'); nul != line.npos)
    fail(ErrorCode::kInvalidArgument, where, ": byte ", nul + 1,
         " is NUL: expected UTF-8 text (is it UTF-16?)");
  require(tokenizer::is_valid_utf8(line), where, ": expected UTF-8 text");
}

}  // namespace

std::vector<Prompt> read_prompts_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path))
    fail(ErrorCode::kNotFound, "prompts file ", path, ": can not be read");
  std::vector<Prompt> prompts;
  std::string line;
  bool json_lines = false;
  for (int number = 1; std::getline(file, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const std::string where = path.string() + ":" + std::to_string(number);
    check_text(line, where);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (prompts.empty()) json_lines = line[line.find_first_not_of(" \t")] == '{';
    prompts.push_back(json_lines ? parse_json_prompt(line, where) : Prompt{line, {}, std::nullopt});
  }
  if (file.bad()) fail(ErrorCode::kNotFound, "prompts file ", path, ": can not be read");
  require(!prompts.empty(), "prompts file ", path, ": no prompts");
  return prompts;
}

}  // namespace attend::cli
