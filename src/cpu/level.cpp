// Which kernels run on this machine.

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "cpu/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace simple_layernorm::cpu {
namespace {

#if defined(__x86_64__)
bool has_f16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

constexpr const Kernels* kLevels[] = {&kAvx512Kernels, &kAvx2Kernels, &kBaselineKernels};
#else
constexpr const Kernels* kLevels[] = {&kBaselineKernels};
#endif

}  // namespace

bool runs_here([[maybe_unused]] const Kernels& level) {
#if defined(__x86_64__)
  // These built-ins also ask whether the operating system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (&level == &kAvx2Kernels) return avx2;
  if (&level == &kAvx512Kernels) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return true;
}

namespace {

/// The best level, or the one that the environment names if it runs here.
const Kernels& choose() {
  const char* wanted = std::getenv("SIMPLE_LAYERNORM_CPU_LEVEL");
  const Kernels* best = nullptr;
  for (const Kernels* level : kLevels) {
    if (!runs_here(*level)) continue;
    if (best == nullptr) best = level;
    if (wanted != nullptr && std::strcmp(wanted, level->name) == 0) return *level;
  }
  return *best;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

std::size_t last_level_cache_bytes() {
  static const std::size_t bytes = [] {
    // Not sysconf: on AMD it adds up all caches of a socket (EPYC: 256 MiB for one of 32).
    std::size_t kib = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
    return kib > 0 ? kib << 10 : std::size_t{1} << 26;  // few machines' share of it is larger
  }();
  return bytes;
}

const char* level() { return kernels().name; }

}  // namespace simple_layernorm::cpu
