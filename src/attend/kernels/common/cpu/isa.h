// Isa: instruction sets that CPU kernels are compiled for, and run-time selection.
//
// The last word of a file's name is the instruction set that it is compiled for (kernels/CMakeLists.txt sets
// the flags): x_portable.cc, x_avx2.cc, x_avx512.cc, x_avx512bf16.cc, x_amx.cc. Only code that runs for that
// Isa may call into such a file.
#pragma once

#include <array>
#include <ostream>
#include <span>
#include <string_view>

namespace attend::kernels::cpu {

// Ordered: a machine that supports an instruction set supports all previous ones.
enum class Isa {
  kPortable,    // the compiler's baseline for the machine (on x86-64: SSE2)
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // kAvx2 and AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // kAvx512, AVX512-BF16, AVX512-VBMI and AVX512-VNNI
  kAmx,         // kAvx512Bf16 and AMX-BF16 tiles, if the operating system permits this process to use them
};

inline constexpr std::array kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                        Isa::kAmx};

// True if the build contains the x86 files. Calls into them are inside `if constexpr (kX86Kernels)`.
#if defined(__x86_64__)
inline constexpr bool kX86Kernels = true;
#else
inline constexpr bool kX86Kernels = false;
#endif

// Returns the best instruction set that this machine and its operating system support. Fast enough for every
// call: the first call reads CPUID and requests permission for AMX tiles from Linux, which applies to all
// threads of the process.
Isa detect_isa();

// Returns the elements of kAllIsas that this machine supports; tests iterate over them.
std::span<const Isa> available_isas();

// Throws Error(kUnsupported) with the best available one, unless this machine supports `isa`.
void require_isa(Isa isa);

// Returns "portable", "avx2", "avx512", "avx512-bf16" or "amx".
std::string_view to_string(Isa isa);
std::ostream& operator<<(std::ostream& out, Isa isa);

}  // namespace attend::kernels::cpu
