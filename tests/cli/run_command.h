// Runs the built attend binary and returns its output and exit code.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/executable_path.h"

namespace attend::testing_support {

inline const std::string kTinyModel = ATTEND_SOURCE_DIR "/models/attend-tiny";
inline const std::string kGolden = ATTEND_SOURCE_DIR "/tests/goldens/llama-gqa4-hd32";

struct CommandResult {
  int exit_code;
  std::string out;  // stdout, or stdout and stderr
};

enum class Streams { kStdout, kBoth };

// `environment` is put before the command, such as "NAME=value".
inline CommandResult attend(const std::string& arguments, Streams streams = Streams::kBoth,
                            const std::string& environment = "") {
  const std::string command = environment + " " + std::string(ATTEND_BINARY) + " " + arguments +
                              (streams == Streams::kBoth ? " 2>&1" : " 2>/dev/null");
  FILE* pipe = popen(command.c_str(), "r");
  CommandResult ran{-1, {}};
  std::array<char, 4096> buffer;
  for (size_t read; (read = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    ran.out.append(buffer.data(), read);
  ran.exit_code = WEXITSTATUS(pclose(pipe));
  return ran;
}

inline std::vector<std::string> split_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::string write_file(const std::string& name, const std::string& content) {
  const std::string path = executable_path(name);
  std::ofstream(path) << content;
  return path;
}

}  // namespace attend::testing_support
