#include "attend/cli/prompts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "attend/base/error.h"
#include "attend/base/log.h"
#include "attend/model/json.h"
#include "attend/model/tokenizer/utf8.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxFileBytes = 1u << 30;
// What some editors put before UTF-8 text.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// The keys of a line of JSON that are read. Files of tasks hold others, which are named once in a warning.
constexpr std::array<std::string_view, 3> kKeys = {"prompt", "input_ids", "answer"};

Prompt parse_json_prompt(const std::string& line, const std::string& where, std::set<std::string>& unread) {
  const Json json = parse_json(line, where);
  require(json.is_object(), where, ": ", excerpt(json),
          ", expected an object with \"prompt\" or \"input_ids\"");
  for (const auto& item : json.items())
    if (std::find(kKeys.begin(), kKeys.end(), item.key()) == kKeys.end()) unread.insert(excerpt(item.key()));
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

// A line that was meant to be read as JSON.
bool is_json_prompt(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && (json.contains("prompt") || json.contains("input_ids"));
}

// The whole file (standard input is "-"), or as much as it takes to see that it is none of text: a NUL ends
// it.
std::string read_text(const std::filesystem::path& path) {
  std::ifstream named;
  if (path != "-") named.open(path, std::ios::binary);
  std::istream& file = path == "-" ? std::cin : named;
  if (!file || std::filesystem::is_directory(path))
    fail(ErrorCode::kNotFound, "prompts file ", path, ": can not be read");
  std::string text;
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    require(text.size() <= kMaxFileBytes, "prompts file ", path, ": more than ", kMaxFileBytes, " bytes");
    if (std::memchr(part.data(), 0, static_cast<size_t>(file.gcount())) != nullptr) break;
  }
  if (file.bad()) fail(ErrorCode::kNotFound, "prompts file ", path, ": can not be read");
  return text;
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
  std::istringstream file(read_text(path));
  std::vector<Prompt> prompts;
  std::string line;
  bool json_lines = false;
  std::set<std::string> unread;
  for (int number = 1; std::getline(file, line); ++number) {
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    const std::string where = path.string() + ":" + std::to_string(number);
    check_text(line, where);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (prompts.empty()) json_lines = line[line.find_first_not_of(" \t")] == '{';
    require(json_lines || line[line.find_first_not_of(" \t")] != '{' || !is_json_prompt(line), where,
            ": a line of JSON in a file that begins with a line of text: expected all lines of one kind");
    prompts.push_back(json_lines ? parse_json_prompt(line, where, unread) : Prompt{line, {}, std::nullopt});
  }
  for (const std::string& key : unread)
    log_warning("prompts file ", path.string(), ": ", key, " is not read; \"prompt\", \"input_ids\" and ",
                "\"answer\" are");
  require(!prompts.empty(), "prompts file ", path, ": no prompts");
  return prompts;
}

}  // namespace attend::cli
