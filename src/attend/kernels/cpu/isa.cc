#include "attend/kernels/cpu/isa.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "attend/base/error.h"

namespace attend::kernels::cpu {
namespace {

// The kernel saves tile registers only for processes that have asked (Linux,
// Documentation/arch/x86/xstate.rst).
bool ask_for_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

Isa detect_isa() {
#if defined(__x86_64__)
  // The builtin also asks the operating system whether it saves the wide registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return Isa::kPortable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512;
  static const bool has_tiles = __builtin_cpu_supports("avx512vbmi") && ask_for_tiles();
  return has_tiles ? Isa::kAmx : Isa::kAvx512Bf16;
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
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, Isa isa) { return out << to_string(isa); }

}  // namespace attend::kernels::cpu
