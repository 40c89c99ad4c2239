// Isa: the instruction sets that CPU kernels are compiled for, and the choice between them at run time.
//
// The last word of a file's name says what it is compiled for (kernels/CMakeLists.txt sets the flags):
// x_portable.cc, x_avx2.cc, x_avx512.cc, x_avx512bf16.cc, x_amx.cc. Only code that an Isa was asked for may
// call into such a file.
#pragma once

#include <array>
#include <ostream>
#include <span>
#include <string_view>

namespace attend::kernels::cpu {

// Ordered: a machine that has one has those before it.
enum class Isa {
  kPortable,    // the compiler's baseline for the machine (on x86-64: SSE2)
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // kAvx2 and AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // kAvx512, AVX512-BF16 and AVX512-VBMI
  kAmx,         // kAvx512Bf16 and the tiles of AMX-BF16, where the operating system lets this process use
                // them
};

inline constexpr std::array kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                        Isa::kAmx};

// Whether the build holds the x86 files at all. Calls into them stand behind `if constexpr (kX86Kernels)`.
#if defined(__x86_64__)
inline constexpr bool kX86Kernels = true;
#else
inline constexpr bool kX86Kernels = false;
#endif

// The best that this machine and its operating system offer. Cheap enough for every call: the first one reads
// CPUID and asks Linux for the use of AMX's tiles, which holds for all threads of the process.
Isa detect_isa();

// Those of kAllIsas that this machine runs: what a test loops over.
std::span<const Isa> available_isas();

// Throws Error(kUnsupported), naming the best available one, unless this machine runs `isa`.
void require_isa(Isa isa);

// "portable", "avx2", "avx512", "avx512-bf16", "amx"
std::string_view to_string(Isa isa);
std::ostream& operator<<(std::ostream& out, Isa isa);

}  // namespace attend::kernels::cpu
