// Numbers are taken in blocks of 128 bytes, so that every level adds up a row in the same order:
// two registers of AVX-512, four of AVX2, eight of SSE2 or NEON. Kernels know only vectors of two
// registers, the pieces of a block: with more, a loop's numbers do not fit the 16 registers of
// AVX2. Piece p has the p-th register of both halves of a block.
#pragma once

#include "cpu/registers.hpp"

namespace simple_layernorm::cpu {
namespace {

constexpr int kRegisters = 2;  ///< of a vector
constexpr int kPieces = 128 / (kRegisters * kRegisterBytes);
template <class T>
constexpr int kLanes = 128 / static_cast<int>(sizeof(T));  ///< of a block
template <class T>
constexpr int kRegisterLanes = kRegisterBytes / static_cast<int>(sizeof(T));

template <class T>
struct Vector {
  Register<T> part[kRegisters];

  Vector() = default;
  KERNEL_INLINE Vector(T value) {
#pragma GCC unroll 2
    for (int i = 0; i < kRegisters; ++i) part[i] = value - Register<T>{};
  }
};

/// Which piece of a block a vector is, and which of its columns exist: all, or only the block's
/// first ones, at the end of a row.
struct Whole {
  int piece;
};
struct First {
  int piece;
  int count;
};
template <class Part>
KERNEL_INLINE Whole whole(Part part) {
  return {part.piece};
}
KERNEL_INLINE bool exists(int, Whole) { return true; }
KERNEL_INLINE bool exists(int column, First first) { return column < first.count; }

/// Calls f(piece) for the pieces of a block.
template <class F>
KERNEL_INLINE void for_pieces(F f) {
#pragma GCC unroll 4
  for (int piece = 0; piece < kPieces; ++piece) f(Whole{piece});
}

/// The lane of the block that lane j of register i of a vector is.
template <class T, class Part>
KERNEL_INLINE int lane_of(int i, int j, Part part) {
  return (part.piece + i * kPieces) * kRegisterLanes<T> + j;
}

/// The vector whose i-th register is f(i).
template <class T, class F>
KERNEL_INLINE Vector<T> by_register(F f) {
  Vector<T> result;
#pragma GCC unroll 2
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

/// A sum over the columns of a row: a vector for each piece.
template <class T>
struct Sum {
  Vector<T> pieces[kPieces];

  KERNEL_INLINE Sum() {
    for_pieces([&](Whole w) KERNEL_LAMBDA { pieces[w.piece] = Vector<T>(T(0)); });
  }
  template <class Part>
  KERNEL_INLINE Vector<T>& operator[](Part part) {
    return pieces[part.piece];
  }

  /// Half of the way to the total: what the registers sum up to.
  KERNEL_INLINE Register<T> folded() const {
    Register<T> sums[kPieces];
    for_pieces([&](Whole w) KERNEL_LAMBDA {
      sums[w.piece] = pieces[w.piece].part[0] + pieces[w.piece].part[1];
    });
#pragma GCC unroll 2
    for (int width = kPieces / 2; width > 0; width /= 2) {
#pragma GCC unroll 2
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    }
    return sums[0];
  }
  KERNEL_INLINE T total() const { return cpu::total<T>(folded()); }
};

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

/// The column that a lane of a block of Element holds. bfloat16 comes in words of two: the lower
/// ones fill the first half of the block, the upper ones the second.
template <class Element>
constexpr int column_of(int lane) {
  return lane;
}
template <>
constexpr int column_of<BFloat16>(int lane) {
  return lane < 16 ? 2 * lane : 2 * lane - 31;
}

/// Elements of a piece that lie next to each other.
template <class Element>
constexpr int kRun = kRegisterLanes<Compute<Element>>;
template <>
constexpr int kRun<BFloat16> = kRegisters * kRegisterLanes<float>;

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
      column[j] = column_of<Element>(lane_of<T>(i, j, first));
    }
    return (Register<T>)((Index)v.part[i] & (column < first.count));
  });
}

// A piece of the block of elements at p in memory, of any alignment, to numbers and back.

template <class T>
KERNEL_INLINE Vector<T> load(const T* p, Whole w) {
  return by_register<T>([&](int i) KERNEL_LAMBDA {
    Register<T> r;
    __builtin_memcpy(&r, p + lane_of<T>(i, 0, w), sizeof r);
    return r;
  });
}
KERNEL_INLINE Vector<float> load(const Float16* p, Whole w) {
  return by_register<float>([&](int i) KERNEL_LAMBDA {
    Halves halves;
    __builtin_memcpy(&halves, p + lane_of<float>(i, 0, w), sizeof halves);
    return float16_to_float(halves);
  });
}
KERNEL_INLINE Vector<float> load(const BFloat16* p, Whole w) {
  Words words;
  __builtin_memcpy(&words, p + w.piece * kRun<BFloat16>, sizeof words);
  Vector<float> v;
  v.part[0] = lower_bfloat16(words);
  v.part[1] = upper_bfloat16(words);
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
KERNEL_INLINE void store(T* p, Vector<T> v, Whole w) {
#pragma GCC unroll 2
  for (int i = 0; i < kRegisters; ++i) put<kStore>(p + lane_of<T>(i, 0, w), v.part[i]);
}
template <Store kStore = Store::cached>
KERNEL_INLINE void store(Float16* p, Vector<float> v, Whole w) {
#pragma GCC unroll 2
  for (int i = 0; i < kRegisters; ++i) {
    put<kStore>(p + lane_of<float>(i, 0, w), float_to_float16(v.part[i]));
  }
}
/// For NaNs see round_to_bfloat16().
template <Store kStore = Store::cached>
KERNEL_INLINE void store(BFloat16* p, Vector<float> v, Whole w) {
  put<kStore>(p + w.piece * kRun<BFloat16>,
              pack_bfloat16(round_to_bfloat16(v.part[0]), round_to_bfloat16(v.part[1])));
}

/// Copies those elements of a piece that exist, run by run, each in pieces of fixed size.
template <class Element>
KERNEL_INLINE void copy_first(Element* to, const Element* from, First first) {
  constexpr int kStep = kPieces * kRun<Element>;
#pragma GCC unroll 2
  for (int begin = first.piece * kRun<Element>; begin < kLanes<Compute<Element>>; begin += kStep) {
    const int left = first.count - begin;
    const int count = left < kRun<Element> ? left : kRun<Element>;
    if (count <= 0) return;
#pragma GCC unroll 8
    for (int size = kRun<Element>, done = begin; size > 0; size /= 2) {
      if ((count & size) == 0) continue;
      __builtin_memcpy(to + done, from + done, size * sizeof(Element));
      done += size;
    }
  }
}
template <class Element>
KERNEL_INLINE Vector<Compute<Element>> load(const Element* p, First first) {
  Element padded[kLanes<Compute<Element>>];
  store(padded, Vector<Compute<Element>>(0), whole(first));
  copy_first(padded, p, first);
  return load(padded, whole(first));
}
template <Store kStore = Store::cached, class Element>
KERNEL_INLINE void store(Element* p, Vector<Compute<Element>> v, First first) {
  Element padded[kLanes<Compute<Element>>];
  store(padded, v, whole(first));
  copy_first(p, padded, first);
}

}  // namespace
}  // namespace simple_layernorm::cpu
