// How a row is walked: in chunks of columns, which threads can share and whose weight and bias fit
// a buffer, and within a chunk in vectors. The order in which a row is summed depends on the number
// of its columns alone.
#pragma once

#include "cpu/kernels.hpp"
#include "cpu/vector.hpp"

namespace simple_layernorm::cpu {
namespace {

/// Whether a pass over short rows of X leaves its numbers for the next, because to convert X is
/// work. AVX2 converts them again in less time: it stores 32 bytes a cycle. 16 bits forward take
/// 0.92 to 0.96 of the time so (EPYC).
template <class X>
constexpr bool kKept = sizeof(X) == 2 && kRegisterBytes != 32;

struct Chunk {
  std::int64_t begin;
  std::int64_t cols;
};

KERNEL_INLINE Chunk chunk_of(std::int64_t cols, std::int64_t index) {
  const std::int64_t begin = index * kChunkCols;
  return {begin, cols - begin < kChunkCols ? cols - begin : kChunkCols};
}

/// Calls body(col, part) for every vector of `cols` columns: a piece of the block at col.
template <class T, class Body>
KERNEL_INLINE void for_vectors(std::int64_t cols, Body body) {
  std::int64_t col = 0;
  for (; col + kLanes<T> <= cols; col += kLanes<T>) {
    for_pieces([&](Whole w) KERNEL_LAMBDA { body(col, w); });
  }
  const int count = static_cast<int>(cols - col);
  for_pieces([&](Whole w) KERNEL_LAMBDA {
    if (w.piece * kRegisterLanes<T> < count) body(col, First{w.piece, count});
  });
}

/// Asks for the cache lines of a block of elements, with its first piece: to be read, in the first-
/// or second-level cache, or to be written soon. Where rows come from beyond that cache, the passes
/// over a row would otherwise wait for memory in turns: forward at 4096 x 768 and 65536 x 64
/// takes 1.3 times as long without.
template <int kCache, class Element, class Part>
KERNEL_INLINE void prefetch_to_read(const Element* p, Part part) {
  if (part.piece != 0) return;
  constexpr int kPerLine = 64 / sizeof(Element);
  for (int i = 0; i < kLanes<Compute<Element>>; i += kPerLine) {
    __builtin_prefetch(p + i, 0, 4 - kCache);
  }
}
/// Elements between fetching a line and writing it, in rows of one chunk. At 1024, float32 backward
/// takes 1.2 times as long at 128 x 1024, 1.1 at 4096 x 1000, and nothing is faster.
constexpr std::int64_t kWriteAhead = 512;
template <class Element, class Part>
KERNEL_INLINE void prefetch_to_write(Element* p, Part part) {
  if (part.piece != 0) return;
  constexpr int kPerLine = 64 / sizeof(Element);
  for (int i = 0; i < kLanes<Compute<Element>>; i += kPerLine) __builtin_prefetch(p + i, 1);
}

/// Calls f(i) for every i in [0, count), on the caller's threads.
template <class F>
void on_threads(const ParallelFor& threads, std::int64_t count, const F& f) {
  run_tasks(threads, count, &f,
            [](const void* context, std::int64_t i) { (*static_cast<const F*>(context))(i); });
}

/// Calls f with an element of the dtype.
template <class F>
KERNEL_INLINE void with_element(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::float32: return f(float{});
    case Dtype::float64: return f(double{});
    case Dtype::float16: return f(Float16{});
    case Dtype::bfloat16: return f(BFloat16{});
  }
}

// Weight, bias and their gradients may have another dtype than the rows of Element that they belong
// to. In between they are numbers in the order in which vectors of Element hold columns.

template <class Element>
constexpr bool kInOrder = column_of<Element>(1) == 1;

/// Calls f(lane, column) for the lanes of a piece whose column exists.
template <class Element, class Part, class F>
KERNEL_INLINE void for_lanes(Part part, F f) {
  using T = Compute<Element>;
  for (int i = 0; i < kRegisters; ++i) {
    for (int j = 0; j < kRegisterLanes<T>; ++j) {
      const int lane = lane_of<T>(i, j, part);
      if (exists(column_of<Element>(lane), part)) f(lane, column_of<Element>(lane));
    }
  }
}

template <class Element, class From, class Part>
KERNEL_INLINE Vector<Compute<Element>> load_for(const From* p, Part part) {
  if constexpr (kInOrder<Element> || sizeof(From) == sizeof(Element)) {
    return load(p, part);
  } else {
    From lanes[kLanes<From>] = {};
    for_lanes<Element>(part, [&](int lane, int column) { lanes[lane] = p[column]; });
    return load(lanes, whole(part));
  }
}

template <class Element, class To, class Part>
KERNEL_INLINE void store_from(To* p, Vector<Compute<Element>> v, Part part) {
  if constexpr (kInOrder<Element> || sizeof(To) == sizeof(Element)) {
    store(p, v, part);
  } else {
    To lanes[kLanes<To>];
    store(lanes, v, whole(part));
    for_lanes<Element>(part, [&](int lane, int column) { p[column] = lanes[lane]; });
  }
}

/// Room for the weight or bias of a chunk.
template <class T>
struct alignas(64) Buffer {
  T columns[kChunkCols];
};

/// Bytes between buffers that are loaded and stored in turns: the processor takes a load for one of
/// what was stored just now if their addresses differ by a multiple of 4096.
constexpr std::int64_t kApart = 1024;

/// v with every NaN replaced by the one whose lower 16 bits are zero: see round_to_bfloat16().
template <class T>
KERNEL_INLINE T with_one_nan(T v) {
  return v == v ? v : T(NAN);
}
template <class T>
KERNEL_INLINE Vector<T> with_one_nan(Vector<T> v) {
  const Register<T> nan = T(NAN) - Register<T>{};
  return by_register<T>([&](int i) KERNEL_LAMBDA {
    const Register<T> r = v.part[i];
    return r == r ? r : nan;
  });
}

/// A chunk of weight or bias, in the order of Element's vectors and a whole number of them: in the
/// buffer, or where it lies if it can be read from there. All `absent` if there is none.
template <class Element, class T = Compute<Element>>
const T* parameter_of(const void* data, Dtype dtype, Chunk chunk, T absent, Buffer<T>& buffer) {
  const auto fill = [&](auto vector_at) KERNEL_LAMBDA {
    for_vectors<T>(chunk.cols, [&](std::int64_t col, auto part) KERNEL_LAMBDA {
      store(buffer.columns + col, vector_at(col, part), whole(part));
    });
    return buffer.columns;
  };
  if (data == nullptr) return fill([=](std::int64_t, auto) { return Vector<T>(absent); });
  if (sizeof(Element) == 2 && dtype != Dtype::float32) {
    const Element* p = static_cast<const Element*>(data) + chunk.begin;
    return fill([=](std::int64_t col, auto part) { return load(p + col, part); });
  }
  const T* p = static_cast<const T*>(data) + chunk.begin;
  if (kInOrder<Element> && chunk.cols % kLanes<T> == 0) return p;
  return fill([=](std::int64_t col, auto part) {
    const Vector<T> v = load_for<Element>(p + col, part);
    return kInOrder<Element> ? v : with_one_nan(v);
  });
}

}  // namespace
}  // namespace simple_layernorm::cpu
