// A vector of numbers, 128 bytes at every level: two registers of AVX-512, four of AVX2, eight of
// SSE2 or NEON. Kernels know only this width, so that every level adds up a row in the same order.
#pragma once

#include "cpu/registers.hpp"

namespace simple_layernorm::cpu {
namespace {

constexpr int kRegisters = 128 / kRegisterBytes;
template <class T>
constexpr int kLanes = 128 / static_cast<int>(sizeof(T));
template <class T>
constexpr int kRegisterLanes = kRegisterBytes / static_cast<int>(sizeof(T));

template <class T>
struct Vector {
  Register<T> part[kRegisters];

  Vector() = default;
  KERNEL_INLINE Vector(T value) {
#pragma GCC unroll 8
    for (int i = 0; i < kRegisters; ++i) part[i] = value - Register<T>{};
  }
};

/// The vector whose i-th register is f(i).
template <class T, class F>
KERNEL_INLINE Vector<T> by_register(F f) {
  Vector<T> result;
#pragma GCC unroll 8
  for (int i = 0; i < kRegisters; ++i) result.part[i] = f(i);
  return result;
}

template <class T>
KERNEL_INLINE Vector<T> operator+(Vector<T> a, Vector<T> b) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return a.part[i] + b.part[i]; });
}
template <class T>
KERNEL_INLINE Vector<T> operator-(Vector<T> a, Vector<T> b) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return a.part[i] - b.part[i]; });
}
template <class T>
KERNEL_INLINE Vector<T> operator*(Vector<T> a, Vector<T> b) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return a.part[i] * b.part[i]; });
}
template <class T>
KERNEL_INLINE Vector<T> fma(Vector<T> a, Vector<T> b, Vector<T> c) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return fma(a.part[i], b.part[i], c.part[i]); });
}

template <class T>
KERNEL_INLINE Vector<T> operator-(Vector<T> a) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return -a.part[i]; });
}
template <class T>
KERNEL_INLINE Vector<T> operator/(Vector<T> a, Vector<T> b) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return a.part[i] / b.part[i]; });
}
template <class T>
KERNEL_INLINE Vector<T> sqrt(Vector<T> a) {
  return by_register<T>([&](int i) KERNEL_LAMBDA { return root(a.part[i]); });
}

/// Half of the way to the total: what the registers sum up to.
template <class T>
KERNEL_INLINE Register<T> folded(Vector<T> v) {
#pragma GCC unroll 8
  for (int width = kRegisters / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) v.part[i] += v.part[i + width];
  }
  return v.part[0];
}
template <class T>
KERNEL_INLINE T total(Vector<T> v) {
  return total<T>(folded(v));
}

/// Type in which a row of Element is computed.
template <class Element>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class Element>
using Compute = typename ComputeType<Element>::type;

/// The column that a lane of a vector of Element holds. bfloat16 comes in words of two: the lower
/// ones fill the first half of the vector, the upper ones the second.
template <class Element>
constexpr int column_of(int lane) {
  return lane;
}
template <>
constexpr int column_of<BFloat16>(int lane) {
  return lane < 16 ? 2 * lane : 2 * lane - 31;
}

/// Which columns a vector holds: all, or only the first ones, at the end of a row.
struct Whole {};
struct First {
  int count;
};

template <class Element, class T>
KERNEL_INLINE Vector<T> keep(Vector<T> v, Whole) {
  return v;
}
/// v with zeros in the lanes that hold no column.
template <class Element, class T>
KERNEL_INLINE Vector<T> keep(Vector<T> v, First first) {
  using Index = decltype(v.part[0] < v.part[0]);
  return by_register<T>([&](int i) KERNEL_LAMBDA {
    Index column = {};
#pragma GCC unroll 16
    for (int j = 0; j < kRegisterLanes<T>; ++j) {
      column[j] = column_of<Element>(i * kRegisterLanes<T> + j);
    }
    return (Register<T>)((Index)v.part[i] & (column < first.count));
  });
}

// Elements in memory, of any alignment, to numbers and back.

template <class T>
KERNEL_INLINE Vector<T> load(const T* p, Whole) {
  return by_register<T>([&](int i) KERNEL_LAMBDA {
    Register<T> r;
    __builtin_memcpy(&r, p + i * kRegisterLanes<T>, sizeof r);
    return r;
  });
}
KERNEL_INLINE Vector<float> load(const Float16* p, Whole) {
  return by_register<float>([&](int i) KERNEL_LAMBDA {
    Halves halves;
    __builtin_memcpy(&halves, p + i * kRegisterLanes<float>, sizeof halves);
    return float16_to_float(halves);
  });
}
KERNEL_INLINE Vector<float> load(const BFloat16* p, Whole) {
  Vector<float> v;
#pragma GCC unroll 4
  for (int i = 0; i < kRegisters / 2; ++i) {
    Words words;
    __builtin_memcpy(&words, p + i * 2 * kRegisterLanes<float>, sizeof words);
    v.part[i] = lower_bfloat16(words);
    v.part[i + kRegisters / 2] = upper_bfloat16(words);
  }
  return v;
}

/// How a vector is stored.
enum class Store {
  cached,
  streamed,  ///< past the caches: the address is a multiple of the register's size
};

template <Store kStore, class R>
KERNEL_INLINE void put(void* p, R r) {
  if constexpr (kStore == Store::streamed) {
    stream(p, r);
  } else {
    __builtin_memcpy(p, &r, sizeof r);
  }
}
template <Store kStore = Store::cached, class T>
KERNEL_INLINE void store(T* p, Vector<T> v, Whole) {
#pragma GCC unroll 8
  for (int i = 0; i < kRegisters; ++i) put<kStore>(p + i * kRegisterLanes<T>, v.part[i]);
}
template <Store kStore = Store::cached>
KERNEL_INLINE void store(Float16* p, Vector<float> v, Whole) {
#pragma GCC unroll 8
  for (int i = 0; i < kRegisters; ++i) {
    put<kStore>(p + i * kRegisterLanes<float>, float_to_float16(v.part[i]));
  }
}
/// For NaNs see round_to_bfloat16().
template <Store kStore = Store::cached>
KERNEL_INLINE void store(BFloat16* p, Vector<float> v, Whole) {
#pragma GCC unroll 4
  for (int i = 0; i < kRegisters / 2; ++i) {
    put<kStore>(
        p + i * 2 * kRegisterLanes<float>,
        pack_bfloat16(round_to_bfloat16(v.part[i]), round_to_bfloat16(v.part[i + kRegisters / 2])));
  }
}

/// Copies count < 32 elements, in pieces of fixed size.
template <class Element>
KERNEL_INLINE void copy_first(Element* to, const Element* from, int count) {
#pragma GCC unroll 8
  for (int piece = kLanes<Compute<Element>> / 2, done = 0; piece > 0; piece /= 2) {
    if ((count & piece) == 0) continue;
    __builtin_memcpy(to + done, from + done, piece * sizeof(Element));
    done += piece;
  }
}
template <class Element>
KERNEL_INLINE Vector<Compute<Element>> load(const Element* p, First first) {
  Element padded[kLanes<Compute<Element>>] = {};
  copy_first(padded, p, first.count);
  return load(padded, Whole{});
}
template <Store kStore = Store::cached, class Element>
KERNEL_INLINE void store(Element* p, Vector<Compute<Element>> v, First first) {
  Element padded[kLanes<Compute<Element>>];
  store(padded, v, Whole{});
  copy_first(p, padded, first.count);
}

}  // namespace
}  // namespace simple_layernorm::cpu
