#include "attend/kernels/gemm/cuda/cublaslt.h"

#include <dlfcn.h>

#include <string>

#include "attend/base/error.h"

namespace attend::kernels::cuda {
namespace {

const std::string kLibrary = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

void* open_library() {
  // Tries the loader's search path, then the directory of the toolkit used for the build.
  for (const std::string& path : {kLibrary, std::string(ATTEND_CUDA_LIBRARY_DIR) + "/" + kLibrary})
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  fail(ErrorCode::kUnsupported, kLibrary, ": not found (required by linear layers on a GPU): ", dlerror());
}

CublasLt load() {
  void* const library = open_library();
  CublasLt functions{};
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) fail(ErrorCode::kUnsupported, kLibrary, ": no function ", name);
  };
  find(functions.version, "cublasLtGetVersion");
  find(functions.create, "cublasLtCreate");
  find(functions.desc_create, "cublasLtMatmulDescCreate");
  find(functions.desc_set, "cublasLtMatmulDescSetAttribute");
  find(functions.layout_create, "cublasLtMatrixLayoutCreate");
  find(functions.preference_create, "cublasLtMatmulPreferenceCreate");
  find(functions.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(functions.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(functions.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(functions.matmul, "cublasLtMatmul");
  find(functions.status_string, "cublasLtGetStatusString");
  return functions;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = load();
  return functions;
}

void check(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(ErrorCode::kDevice, what, ": ", cublaslt().status_string(status));
}

}  // namespace attend::kernels::cuda
