#include "attend/kernels/common/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "attend/base/error.h"

namespace attend::kernels::cpu {
namespace {

#if defined(__x86_64__)
// CPUID leaf 7 has AMX-BF16 in bit 22 of EDX and AMX-TILE in bit 24. A thread's tiles are 8 KiB, which Linux
// saves only for processes that requested permission (Linux documentation, arch/x86/xstate).
bool may_use_tiles() {
  constexpr unsigned kAmxBits = 1u << 22 | 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBits) == kAmxBits &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// clang's builtin does not support this name.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

Isa find_isa() {
#if defined(__x86_64__)
  // The builtin also checks that the operating system saves the wide registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) return Isa::kPortable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return Isa::kAvx2;
  // One generation of servers with BF16 has no VBMI.
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi") ||
      !__builtin_cpu_supports("avx512vnni"))
    return Isa::kAvx512;
  return may_use_tiles() ? Isa::kAmx : Isa::kAvx512Bf16;
#else
  return Isa::kPortable;
#endif
}

}  // namespace

Isa detect_isa() {
  static const Isa isa = find_isa();
  return isa;
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
