// cuBLASLt functions that attend calls, loaded on first use: a build with CUDA starts on machines without the
// library.
#pragma once

#include <cublasLt.h>

#include <string_view>

namespace attend::kernels::cuda {

struct CublasLt {
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtGetStatusString) status_string;
};

// Loads the library of the major version that attend was built with. Throws Error(kUnsupported) with its name
// if it is not found.
const CublasLt& cublaslt();

// Throws Error(kDevice) with cuBLASLt's error text unless `status` is success.
void check(cublasStatus_t status, std::string_view what);

}  // namespace attend::kernels::cuda
