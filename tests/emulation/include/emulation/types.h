// Indices, vector types and the other names that HIP puts into the global namespace.
#pragma once

#include <cstdint>

#define EMULATION_VECTOR_TYPES(name, T)                                              \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                 \
  struct name##3 { T x, y, z; };                                                     \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                         \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMULATION_VECTOR_TYPES(char, signed char)
EMULATION_VECTOR_TYPES(uchar, unsigned char)
EMULATION_VECTOR_TYPES(short, short)
EMULATION_VECTOR_TYPES(ushort, unsigned short)
EMULATION_VECTOR_TYPES(int, int)
EMULATION_VECTOR_TYPES(uint, unsigned)
EMULATION_VECTOR_TYPES(longlong, long long)
EMULATION_VECTOR_TYPES(ulonglong, unsigned long long)
EMULATION_VECTOR_TYPES(float, float)
EMULATION_VECTOR_TYPES(double, double)
#undef EMULATION_VECTOR_TYPES

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Set by the runtime whenever another thread of the grid gets the processor.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

constexpr int warpSize = SIMPLE_LAYERNORM_EMULATED_WAVE;

namespace emulation {

/// Where in the kernel's source an operation stands. Default arguments fill it in at the call.
struct Site {
  const char* operation;
  const char* file;
  int line;
  int variant = 0;  ///< tells operations on one line apart, such as a DPP control
};

inline bool operator==(const Site& a, const Site& b) {
  return a.line == b.line && a.variant == b.variant && a.file == b.file &&
         a.operation == b.operation;
}

}  // namespace emulation

#define EMULATION_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()
