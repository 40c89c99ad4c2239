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
#include "attend/checkpoint/input_file.h"
#include "attend/checkpoint/parse_json.h"
#include "attend/text/tokenizer/utf8.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxFileBytes = 1u << 30;
// Maximum size of a token's text; the longest tokens of vocabularies are runs of a few hundred spaces.
constexpr size_t kMaxTokenBytes = 1024;
constexpr int kMaxPriority = 1'000'000;
constexpr double kMaxTimeout = 1e6;
// UTF-8 byte order mark, written by some editors.
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Keys of a JSON line that are read. Other keys, which files of tasks may have, are listed once in a warning.
constexpr std::array<std::string_view, 6> kKeys = {"prompt",   "input_ids", "answer",
                                                   "priority", "timeout",   "lora_path"};

Prompt parse_json_prompt(const std::string& line, const std::string& where, const SamplingChoice& sampling,
                         std::set<std::string>& unknown) {
  const Json json = parse_json(line, where);
  require(json.is_object(), where, ": ", excerpt(json),
          ", expected an object with \"prompt\" or \"input_ids\"");
  for (const auto& item : json.items())
    if (std::find(kKeys.begin(), kKeys.end(), item.key()) == kKeys.end() && !is_sampling_field(item.key()))
      unknown.insert(excerpt(item.key()));
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
  if (json.contains("priority")) {
    const Json& priority = json["priority"];
    require(priority.is_number_integer() && priority >= -kMaxPriority && priority <= kMaxPriority, where,
            ": \"priority\" is ", excerpt(priority), ", expected an integer from ", -kMaxPriority, " to ",
            kMaxPriority);
    prompt.priority = priority.get<int>();
  }
  if (json.contains("lora_path")) {
    const Json& adapter = json["lora_path"];
    require(adapter.is_string() || adapter.is_null(), where, ": \"lora_path\" is ", excerpt(adapter),
            ", expected the name of an adapter, or null for none");
    prompt.adapter = adapter.is_null() ? "" : adapter.get<std::string>();
  }
  if (json.contains("timeout")) {
    const Json& timeout = json["timeout"];
    require(timeout.is_number() && timeout > 0.0 && timeout <= kMaxTimeout, where, ": \"timeout\" is ",
            excerpt(timeout), ", expected seconds, above 0 and at most ", kMaxTimeout);
    prompt.timeout = timeout.get<double>();
  }
  prompt.params = with_fields(sampling, json, where);
  return prompt;
}

// Parses a text as JSON; returns no value if it is not JSON.
std::optional<Json> as_json(const std::string& text) {
  try {
    return parse_json(text, {});
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Rejects a line of a text file that looks like JSON.
void check_is_no_json(const std::string& line, const std::string& where) {
  constexpr const char* kAccepted =
      "lines of text, or lines of JSON objects with \"prompt\" or \"input_ids\"";
  const size_t first = line.find_first_not_of(" \t\r\n");
  if (first == line.npos || (line[first] != '{' && line[first] != '[')) return;
  const std::optional<Json> json = as_json(line);
  if (!json) return;
  require(!json->contains("prompt") && !json->contains("input_ids"), where,
          ": a line of JSON in a file that begins with a line of text: expected all lines of one kind");
  require(!json->is_array(), where, ": a JSON array: expected ", kAccepted,
          " (an array that is a text: {\"prompt\": \"[...]\"})");
}

// Reads the complete file ("-": standard input), or only until it is clear that it is not text: a NUL ends
// it. The source may be an endless pipe, so more than `max_bytes` is an error, explained by `why`.
std::string read_text(const std::filesystem::path& path, size_t max_bytes, const std::string& why) {
  if (path != "-" && !file_exists(path))
    fail(ErrorCode::kNotFound, "prompts file ", path.string(), ": no such file");
  std::ifstream named;
  if (path != "-") named.open(path, std::ios::binary);
  std::istream& file = path == "-" ? std::cin : named;
  std::string text;
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (std::memchr(part.data(), 0, static_cast<size_t>(file.gcount())) != nullptr) break;
    require(text.size() <= max_bytes, "prompts file ", path.string(), ": more than ", max_bytes, " bytes",
            why);
  }
  if (file.bad() || (!file.eof() && text.empty())) {
    if (path != "-") InputFile(path).read(0, 1);  // throws the specific error
    fail(ErrorCode::kNotFound, "prompts file ", path.string(), ": cannot be read");
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

// Checks a line of text. Other encodings and binary files are not supported.
void check_text(const std::string& line, const std::string& where) {
  if (const size_t nul = line.find('\0'); nul != line.npos)
    fail(ErrorCode::kInvalidArgument, where, ": byte ", nul + 1,
         " is NUL: expected UTF-8 text (is it UTF-16?)");
  require(tokenizer::is_valid_utf8(line), where, ": expected UTF-8 text");
}

// Warns about unknown keys. Some may be misspelled, and there may be many, so only the first ones are listed.
void warn_about_unknown_keys(const std::set<std::string>& unknown, const std::filesystem::path& path) {
  constexpr size_t kMaxNamed = 8;
  size_t num_named = 0;
  for (const std::string& key : unknown) {
    if (num_named++ == kMaxNamed) break;
    log_warning("prompts file ", path.string(), ": ", key, " is ignored; \"prompt\", \"input_ids\", ",
                "\"answer\" and sampling parameters are read");
  }
  if (unknown.size() > kMaxNamed)
    log_warning("prompts file ", path.string(), ": ignoring ", unknown.size() - kMaxNamed, " other keys");
}

}  // namespace

Prompt read_prompt_file(const std::filesystem::path& path, const SamplingChoice& sampling,
                        int context_length) {
  std::string text = read_text(
      path, std::min(kMaxFileBytes, kMaxTokenBytes * static_cast<size_t>(context_length)),
      ", more than the context of " + std::to_string(context_length) + " tokens: expected one prompt");
  check_text(text, path.string());
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  require(!text.empty(), "prompts file ", path.string(), ": no prompt");
  return {std::move(text), {}, std::nullopt, sampling.params};
}

std::vector<Prompt> read_prompts_file(const std::filesystem::path& path, const SamplingChoice& sampling) {
  std::string text = read_text(path, kMaxFileBytes, ": expected one prompt per line");
  if (const size_t first = text.find_first_not_of(" \t\r\n"); first != text.npos && text[first] == '[')
    check_is_no_json(text, path.string());
  std::istringstream file(std::move(text));
  std::vector<Prompt> prompts;
  std::string line;
  bool json_lines = false;
  std::set<std::string> unknown;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = path.string() + ":" + std::to_string(number);
    check_text(line, where);
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    if (prompts.empty()) json_lines = line[line.find_first_not_of(" \t")] == '{';
    if (!json_lines) check_is_no_json(line, where);
    prompts.push_back(json_lines ? parse_json_prompt(line, where, sampling, unknown)
                                 : Prompt{line, {}, std::nullopt, sampling.params});
  }
  warn_about_unknown_keys(unknown, path);
  require(!prompts.empty(), "prompts file ", path.string(), ": no prompts");
  return prompts;
}

}  // namespace attend::cli
