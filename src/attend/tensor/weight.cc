#include "attend/tensor/weight.h"

namespace attend {

std::string_view to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::kPlain:
      return "plain";
  }
  return "?";
}

std::ostream& operator<<(std::ostream& out, const Weight& weight) {
  if (weight.format != WeightFormat::kPlain) out << to_string(weight.format) << ' ';
  return out << weight.data;
}

}  // namespace attend
