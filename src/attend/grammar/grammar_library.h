// GrammarLibrary: the libraries that compile grammars, where they are installed.
//
// attend loads them at run time and needs none of them otherwise: xgrammar 0.2.8 and apache-tvm-ffi 0.1.15,
// both of the Python package index, for the sake of the libraries in them. Python itself is not needed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#pragma GCC visibility push(default)
namespace attend {

namespace xgrammar {
struct Library;
}

class GrammarLibrary {
 public:
  // `folder`: a site-packages folder of Python with the packages xgrammar and tvm_ffi, or any folder with
  // their two libraries. Throws Error(kNotFound) where they are not, and Error(kUnsupported) for other
  // versions. Empty: ATTEND_GRAMMAR_LIBRARY_PATH of the environment stands for it; without that, wherever the
  // loader looks, and if they are nowhere, there are no grammars.
  static GrammarLibrary load(const std::filesystem::path& folder = {});

  // As load(), but what is wrong with the folder means that there are none.
  static GrammarLibrary find(const std::filesystem::path& folder);

  // Null: there are no grammars.
  const std::shared_ptr<const xgrammar::Library>& xgrammar() const { return xgrammar_; }
  bool available() const { return xgrammar_ != nullptr; }
  // What to say to who wants one all the same: which packages to install, and what was wrong with those
  // found.
  std::string rejection() const;
  // The first half of it.
  static std::string advice();

 private:
  std::shared_ptr<const xgrammar::Library> xgrammar_;
  std::string problem_;
};

}  // namespace attend
#pragma GCC visibility pop
