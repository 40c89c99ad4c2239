#include "tests/kernels/conformance/cases/literal.h"

#include "attend/base/error.h"

namespace attend::conformance {

std::string_view literal_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "DType::kF32";
    case DType::kF16:
      return "DType::kF16";
    case DType::kBF16:
      return "DType::kBF16";
    case DType::kF8E4M3:
      return "DType::kF8E4M3";
    case DType::kF8E5M2:
      return "DType::kF8E5M2";
    case DType::kU8:
      return "DType::kU8";
    default:
      fail(ErrorCode::kInternal, "an attention case of dtype ", dtype);
  }
}

std::string_view literal_name(KvLayout layout) {
  return layout == KvLayout::kTokenMajor ? "KvLayout::kTokenMajor" : "KvLayout::kHeadMajor";
}

std::string_view literal_name(kernels::KvIndexKind kind) {
  constexpr std::string_view kNames[] = {"kernels::KvIndexKind::kRequestRows",
                                         "kernels::KvIndexKind::kPageTable", "kernels::KvIndexKind::kCsr",
                                         "kernels::KvIndexKind::kContiguous"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view literal_name(kernels::SplitRule rule) {
  constexpr std::string_view kNames[] = {"kernels::SplitRule::kNone", "kernels::SplitRule::kFixed",
                                         "kernels::SplitRule::kBalanced"};
  return kNames[static_cast<size_t>(rule)];
}

void LiteralPrinter::print(float value) {
  std::ostringstream digits;
  digits.precision(9);
  digits << value;
  const bool whole = digits.str().find_first_of(".e") == std::string::npos;
  out_ << digits.str() << (whole ? ".0f" : "f");
}

}  // namespace attend::conformance
