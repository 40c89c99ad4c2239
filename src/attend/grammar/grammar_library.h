// GrammarLibrary: finds and loads the libraries that compile grammars.
//
// Grammars need xgrammar 0.2.8 and apache-tvm-ffi 0.1.15, two packages of the Python package index that
// contain these libraries. They are loaded at run time and needed only for grammars. Python itself is not
// needed.
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
  // `folder`: Python's site-packages folder with the packages xgrammar and tvm_ffi, or a folder with their
  // two libraries. Throws Error(kNotFound) if they are missing, and Error(kUnsupported) for other versions.
  // If empty, the environment variable ATTEND_GRAMMAR_LIBRARY_PATH is used, otherwise the loader's search
  // path; if nothing is found there, grammars are not available.
  static GrammarLibrary load(const std::filesystem::path& folder = {});

  // Like load(), but errors mean that grammars are not available.
  static GrammarLibrary find(const std::filesystem::path& folder);

  // Null if grammars are not available.
  const std::shared_ptr<const xgrammar::Library>& xgrammar() const { return xgrammar_; }
  bool available() const { return xgrammar_ != nullptr; }
  // Error message for requests with grammars: the packages to install, and the problem of those found.
  std::string rejection() const;
  // First part of the message.
  static std::string advice();

 private:
  std::shared_ptr<const xgrammar::Library> xgrammar_;
  std::string problem_;
};

}  // namespace attend
#pragma GCC visibility pop
