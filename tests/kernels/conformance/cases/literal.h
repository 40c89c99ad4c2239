// Prints a case as a C++ literal, so that a failing case can be pasted into a test.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "attend/kernels/attention/attention_plan.h"
#include "attend/kernels/metadata/kv_index.h"
#include "attend/kv/kv_pool.h"
#include "attend/tensor/dtype.h"

namespace attend::conformance {

std::string_view literal_name(DType dtype);
std::string_view literal_name(KvLayout layout);
std::string_view literal_name(kernels::KvIndexKind kind);
std::string_view literal_name(kernels::SplitRule rule);

// Prints `Type{.field = value, .other = value}`; fields with default values are omitted. Enums print with
// literal_name(), other types with an operator<< that prints a literal.
class LiteralPrinter {
 public:
  explicit LiteralPrinter(std::string_view type) { out_ << type << '{'; }

  template <class T>
  void field(std::string_view name, const T& value, const T& usual) {
    if (value == usual) return;
    out_ << separator_ << '.' << name << " = ";
    print(value);
    separator_ = ", ";
  }

  std::string finish() { return out_.str() + "}"; }

 private:
  void print(bool value) { out_ << (value ? "true" : "false"); }
  void print(int value) { out_ << value; }
  void print(uint64_t value) { out_ << value << 'u'; }
  void print(float value);
  template <class T>
  void print(const std::vector<T>& values) {
    out_ << '{';
    for (size_t i = 0; i < values.size(); ++i) out_ << (i ? ", " : "") << values[i];
    out_ << '}';
  }
  template <class E>
  void print(E value) {
    out_ << literal_name(value);
  }

  std::ostringstream out_;
  std::string_view separator_ = "";
};

}  // namespace attend::conformance
