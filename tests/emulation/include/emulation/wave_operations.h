// Operations in lockstep among the lanes of a wave: shuffles, DPP, votes, reading a lane. Each is a
// meeting: all lanes that can come bring a value, then each takes what it needs from the others.
#pragma once

#include <cstring>

#include "emulation/types.h"

namespace emulation {

/// Brings `value` to the meeting at `site`, and returns when all lanes that can come have come.
void meet(std::uint64_t value, const Site& site);

/// This thread's lane, and whether a lane of its wave came to the last meeting.
int lane();
bool came(int lane);

/// What `lane` brought to the last meeting. It is a fault to ask for a lane that did not come.
std::uint64_t brought_by(int lane);

/// What lanes that came brought, bit by bit: for votes.
std::uint64_t votes();
std::uint64_t lanes_that_came();

/// Lane that a DPP control reads for `lane`, or -1 for none. Faults on controls that waves of this
/// size do not have.
int dpp_source(int lane, int control);

int update_dpp(int old, int value, int control, int row_mask, int bank_mask, bool bound_control,
               const Site& site);
int permlanex16(int value, unsigned low, unsigned high, const Site& site);
int swizzle(int value, int pattern, const Site& site);

template <class T>
std::uint64_t pack(T value) {
  static_assert(sizeof(T) <= 8, "wave operations move at most 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T unpack(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T take_from(int lane) {
  return unpack<T>(brought_by(lane));
}

}  // namespace emulation

template <class T>
T __shfl(T value, int source, int width = warpSize, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__shfl", file, line});
  return emulation::take_from<T>((emulation::lane() & ~(width - 1)) + (source & (width - 1)));
}

template <class T>
T __shfl_xor(T value, int mask, int width = warpSize, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__shfl_xor", file, line});
  const int lane = emulation::lane(), source = lane ^ mask;
  return emulation::take_from<T>(source / width > lane / width ? lane : source);
}

template <class T>
T __shfl_up(T value, unsigned distance, int width = warpSize, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__shfl_up", file, line});
  const int lane = emulation::lane(), d = static_cast<int>(distance);
  return emulation::take_from<T>(lane % width >= d ? lane - d : lane);
}

template <class T>
T __shfl_down(T value, unsigned distance, int width = warpSize, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__shfl_down", file, line});
  const int lane = emulation::lane(), d = static_cast<int>(distance);
  return emulation::take_from<T>(lane % width + d < width ? lane + d : lane);
}

inline unsigned long long __ballot(int predicate, EMULATION_CALLER) {
  emulation::meet(predicate != 0, {"__ballot", file, line});
  return emulation::votes();
}
inline int __any(int predicate, EMULATION_CALLER) {
  emulation::meet(predicate != 0, {"__any", file, line});
  return emulation::votes() != 0;
}
inline int __all(int predicate, EMULATION_CALLER) {
  emulation::meet(predicate != 0, {"__all", file, line});
  return emulation::votes() == emulation::lanes_that_came();
}
inline void __builtin_amdgcn_wave_barrier(EMULATION_CALLER) {
  emulation::meet(0, {"__builtin_amdgcn_wave_barrier", file, line});
}

inline int __builtin_amdgcn_readlane(int value, int source, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__builtin_amdgcn_readlane", file, line});
  return emulation::take_from<int>(source);
}
inline int __builtin_amdgcn_readfirstlane(int value, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__builtin_amdgcn_readfirstlane", file, line});
  return emulation::take_from<int>(__builtin_ctzll(emulation::lanes_that_came()));
}
inline int __builtin_amdgcn_ds_bpermute(int address, int value, EMULATION_CALLER) {
  emulation::meet(emulation::pack(value), {"__builtin_amdgcn_ds_bpermute", file, line});
  return emulation::take_from<int>(address / 4 & (warpSize - 1));
}
inline int __builtin_amdgcn_ds_swizzle(int value, int pattern, EMULATION_CALLER) {
  return emulation::swizzle(value, pattern, {"__builtin_amdgcn_ds_swizzle", file, line, pattern});
}
inline int __builtin_amdgcn_update_dpp(int old, int value, int control, int row_mask, int bank_mask,
                                       bool bound_control, EMULATION_CALLER) {
  return emulation::update_dpp(old, value, control, row_mask, bank_mask, bound_control,
                               {"__builtin_amdgcn_update_dpp", file, line, control});
}
inline int __builtin_amdgcn_mov_dpp(int value, int control, int row_mask, int bank_mask,
                                    bool bound_control, EMULATION_CALLER) {
  constexpr int kUndefined = 0x7ff57ff5;
  return emulation::update_dpp(kUndefined, value, control, row_mask, bank_mask, bound_control,
                               {"__builtin_amdgcn_mov_dpp", file, line, control});
}
inline unsigned __builtin_amdgcn_permlanex16(unsigned, unsigned value, unsigned low, unsigned high,
                                             bool, bool, EMULATION_CALLER) {
  return static_cast<unsigned>(emulation::permlanex16(
      static_cast<int>(value), low, high, {"__builtin_amdgcn_permlanex16", file, line}));
}

inline unsigned __lane_id() { return static_cast<unsigned>(emulation::lane()); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
