// A pack: 16 bytes of a row as they lie in memory, the most that one load instruction moves. Rows
// stay packed in registers, half the space for 16-bit types, and are expanded on use.
#pragma once

#include <cstdint>

#include "gpu/elements.hpp"

namespace simple_layernorm::gpu {

struct alignas(16) Pack {
  std::uint32_t words[4];
};

/// Elements in a pack.
template <class Element>
constexpr int kPackSize = static_cast<int>(sizeof(Pack) / sizeof(Element));

__host__ __device__ inline bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % sizeof(Pack) == 0;
}

__device__ inline Pack load_aligned(const void* p) {
  const uint4 v = *static_cast<const uint4*>(p);
  return {{v.x, v.y, v.z, v.w}};
}

/// The same of data that should stay in cache longer than others, see load_lasting.
__device__ inline Pack load_aligned_lasting(const void* p) {
  const uint4 v = load_lasting(static_cast<const uint4*>(p));
  return {{v.x, v.y, v.z, v.w}};
}

/// The same of data that many rows share, see load_kept.
__device__ inline Pack load_aligned_kept(const void* p) {
  const uint4 v = load_kept(static_cast<const uint4*>(p));
  return {{v.x, v.y, v.z, v.w}};
}

__device__ inline void store_aligned(void* p, const Pack& pack) {
  *static_cast<uint4*>(p) = uint4{pack.words[0], pack.words[1], pack.words[2], pack.words[3]};
}

/// At any address, for devices that can: see kMovesUnalignedPacks.
__device__ inline Pack load_unaligned(const void* p) {
  Pack pack;
  __builtin_memcpy(&pack, p, sizeof pack);
  return pack;
}
__device__ inline void store_unaligned(void* p, const Pack& pack) {
  __builtin_memcpy(p, &pack, sizeof pack);
}

/// By whichever of the two suits the device: callers see to the alignment that it needs.
__device__ inline Pack load_pack(const void* p) {
  return kMovesUnalignedPacks ? load_unaligned(p) : load_aligned(p);
}
__device__ inline void store_pack(void* p, const Pack& pack) {
  const auto [x, y, z, w] = pack.words;
  kMovesUnalignedPacks ? store_unaligned(p, pack)
                       : store_whole(static_cast<uint4*>(p), uint4{x, y, z, w});
}

// Expansion to float and back. `hide` is zero, but in a way that the compiler cannot know: given
// constants, it expands a row once and keeps the floats, twice the registers, or spills them.
struct Hide {
  std::uint32_t zero;

  __device__ Hide(int = 0) : zero(0) {}
  /// The bits of a row's index from `bit` on, 60 to 63: none.
  __device__ Hide(std::int64_t row, int bit)
      : zero(static_cast<std::uint32_t>(static_cast<std::uint64_t>(row) >> bit)) {}
};

/// The same pointer, but so that reads through it are not moved out of a loop over rows.
template <class T>
__device__ const T* hidden(const T* p, Hide hide) {
  return p != nullptr ? p + hide.zero : nullptr;
}

template <class Element>
__device__ void expand(const Pack& pack, float (&x)[kPackSize<Element>], Hide hide);

template <>
__device__ inline void expand<float>(const Pack& pack, float (&x)[4], Hide) {
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = float_of(pack.words[i]);
}

template <>
__device__ inline void expand<BFloat16>(const Pack& pack, float (&x)[8], Hide hide) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = float_of(pack.words[i] << (16 + hide.zero));
    x[2 * i + 1] = float_of(pack.words[i] & (0xffff0000u | hide.zero));
  }
}

template <>
__device__ inline void expand<Float16>(const Pack& pack, float (&x)[8], Hide hide) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = pack.words[i] | hide.zero;
    x[2 * i] = float_from_float16(static_cast<std::uint16_t>(word));
    x[2 * i + 1] = float_from_float16(static_cast<std::uint16_t>(word >> 16));
  }
}

template <class Element>
__device__ Pack compress(const float (&x)[kPackSize<Element>]);

template <>
__device__ inline Pack compress<float>(const float (&x)[4]) {
  return {{bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])}};
}

template <>
__device__ inline Pack compress<BFloat16>(const float (&x)[8]) {
  return {{pair_of_bfloat16(x[0], x[1]), pair_of_bfloat16(x[2], x[3]), pair_of_bfloat16(x[4], x[5]),
           pair_of_bfloat16(x[6], x[7])}};
}

template <>
__device__ inline Pack compress<Float16>(const float (&x)[8]) {
  return {{pair_of_float16(x[0], x[1]), pair_of_float16(x[2], x[3]), pair_of_float16(x[4], x[5]),
           pair_of_float16(x[6], x[7])}};
}

/// A pack of equal values.
template <class Element>
__device__ Pack pack_of(float value) {
  float values[kPackSize<Element>];
#pragma unroll
  for (float& v : values) v = value;
  return compress<Element>(values);
}

/// kValues values of type T as they lie in memory: one pack, or two where T is the wider type.
template <class T, int kValues>
struct PackedValues {
  static constexpr int kSize = kPackSize<T>;
  static constexpr int kCount = kValues / kSize;
  Pack packs[kCount];

  static __device__ PackedValues all(float value) {
    PackedValues values;
#pragma unroll
    for (Pack& pack : values.packs) pack = pack_of<T>(value);
    return values;
  }

  static __device__ PackedValues of(const float (&x)[kValues]) {
    PackedValues values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float part[kSize];
#pragma unroll
      for (int j = 0; j < kSize; ++j) part[j] = x[i * kSize + j];
      values.packs[i] = compress<T>(part);
    }
    return values;
  }

  template <bool kKeep = false>
  static __device__ PackedValues load(const T* aligned) {
    PackedValues values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const T* pack = aligned + i * kSize;
      values.packs[i] = kKeep ? load_aligned_kept(pack) : load_aligned(pack);
    }
    return values;
  }

  /// See load_pack.
  static __device__ PackedValues load_packs(const T* p) {
    PackedValues values;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.packs[i] = load_pack(p + i * kSize);
    return values;
  }

  __device__ void expand_to(float (&x)[kValues], Hide hide) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float part[kSize];
      expand<T>(packs[i], part, hide);
#pragma unroll
      for (int j = 0; j < kSize; ++j) x[i * kSize + j] = part[j];
    }
  }
};

}  // namespace simple_layernorm::gpu
