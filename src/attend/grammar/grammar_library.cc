#include <cstdlib>

#include "attend/base/error.h"
#include "attend/grammar/grammar_compiler.h"
#include "attend/grammar/xgrammar.h"

namespace attend {
namespace {

constexpr char kTvmFfi[] = "libtvm_ffi.so", kBindings[] = "libxgrammar_bindings.so";

// Returns the path of a library in the folder itself or in its package.
std::filesystem::path find_in(const std::filesystem::path& folder, const std::filesystem::path& in_package,
                              const char* name) {
  std::error_code unreadable;
  for (const std::filesystem::path& path : {folder / name, folder / in_package / name})
    if (std::filesystem::exists(path, unreadable)) return path;
  fail(ErrorCode::kNotFound, folder.string(), ": contains neither ", name, " nor ",
       (in_package / name).string(), "; ", GrammarLibrary::install_hint());
}

}  // namespace

GrammarLibrary GrammarLibrary::load(const std::filesystem::path& folder) {
  const char* const variable = std::getenv("ATTEND_GRAMMAR_LIBRARY_PATH");
  const std::filesystem::path named = !folder.empty() ? folder : variable != nullptr ? variable : "";
  GrammarLibrary library;
  if (!named.empty()) {
    library.xgrammar_ = std::make_shared<const xgrammar::Library>(find_in(named, "tvm_ffi/lib", kTvmFfi),
                                                                  find_in(named, "xgrammar", kBindings));
    return library;
  }
  try {
    library.xgrammar_ = std::make_shared<const xgrammar::Library>(kTvmFfi, kBindings);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
  return library;
}

GrammarLibrary GrammarLibrary::find(const std::filesystem::path& folder) {
  try {
    return load(folder);
  } catch (const Error& error) {
    GrammarLibrary library;
    library.problem_ = error.what();
    return library;
  }
}

std::string GrammarLibrary::rejection() const {
  return problem_.empty() ? install_hint() : install_hint() + "; found: " + problem_;
}

std::string GrammarLibrary::install_hint() {
  return "grammars need two packages: pip install --no-deps --target FOLDER xgrammar==0.2.8 "
         "apache-tvm-ffi==0.1.15.post2, then --grammar-library-path FOLDER or ATTEND_GRAMMAR_LIBRARY_PATH";
}

}  // namespace attend
