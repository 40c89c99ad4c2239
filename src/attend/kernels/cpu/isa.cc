#include "attend/kernels/cpu/isa.h"

#include "attend/base/error.h"

namespace attend::kernels::cpu {

Isa detect_isa() {
#if defined(__x86_64__)
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return Isa::kPortable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
#else
  return Isa::kPortable;
#endif
}

std::span<const Isa> available_isas() {
  return std::span(kAllIsas).first(static_cast<size_t>(detect_isa()) + 1);
}

void require_isa(Isa isa) {
  if (isa > detect_isa())
    fail(ErrorCode::kUnsupported, "instruction set ", isa, ": this machine has up to ", detect_isa());
}

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512-bf16";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, Isa isa) { return out << to_string(isa); }

}  // namespace attend::kernels::cpu
