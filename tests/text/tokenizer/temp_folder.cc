#include "tests/text/tokenizer/temp_folder.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace attend::testing {

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "attend_tokenizer_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("can not make " + name);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TempFolder::write(const std::string& name, std::string_view content) const {
  const std::filesystem::path path = path_ / name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("can not open " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace attend::testing
