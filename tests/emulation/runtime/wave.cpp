// Meetings of the lanes of a wave, and the patterns in which AMD's instructions move values.

#include <algorithm>

#include "fault.hpp"
#include "grid.hpp"

namespace emulation {
namespace {

constexpr int kRow = 16;  // lanes that DPP calls a row

bool between(int control, int first, int last) { return control >= first && control <= last; }

Thread& neighbour(int lane) {
  return current_block->threads[current_thread->linear - emulation::lane() + lane];
}

}  // namespace

int lane() { return current_thread->linear % warpSize; }

void meet(std::uint64_t value, const Site& site) {
  current_thread->brought = value;
  wait_as(State::at_wave_operation, site);
}

bool came(int lane) { return lane >= 0 && lane < warpSize && (current_thread->came >> lane & 1); }

std::uint64_t brought_by(int lane) {
  if (!came(lane)) {
    fault("reads lane " + std::to_string(lane) + ", which is not active in this operation",
          current_thread->site);
  }
  return neighbour(lane).shown;
}

std::uint64_t lanes_that_came() { return current_thread->came; }

std::uint64_t votes() {
  std::uint64_t votes = 0;
  for (int i = 0; i < warpSize; ++i) {
    if (came(i)) votes |= (neighbour(i).shown & 1) << i;
  }
  return votes;
}

bool release_waves(Block& block) {
  bool released = false;
  const int count = static_cast<int>(block.threads.size());
  for (int first = 0; first < count; first += warpSize) {
    Thread* const begin = &block.threads[first];
    Thread* const end = &block.threads[0] + std::min(count, first + warpSize);
    const auto waits = [](const Thread& t) { return t.state == State::at_wave_operation; };
    const auto runs = [](const Thread& t) {
      return t.state == State::ready || t.state == State::polling;
    };
    const Thread* const leader = std::find_if(begin, end, waits);
    if (leader == end || std::any_of(begin, end, runs)) continue;
    // Lanes at another operation wait for their turn, as they do when the wave has diverged.
    const Site site = leader->site;
    std::uint64_t came = 0;
    for (Thread* t = begin; t != end; ++t) {
      if (waits(*t) && t->site == site) came |= std::uint64_t{1} << (t - begin);
    }
    for (Thread* t = begin; t != end; ++t) {
      if (!(came >> (t - begin) & 1)) continue;
      t->came = came;
      t->shown = t->brought;
      t->state = State::ready;
    }
    released = true;
  }
  return released;
}

int dpp_source(int lane, int control) {
  const int in_row = lane % kRow, row = lane - in_row, amount = control & 15;
  const auto only_on = [&](int wave, const char* name) {
    if (warpSize == wave) return;
    fault(std::string("DPP ") + name + " does not exist on devices with waves of " +
              std::to_string(warpSize),
          current_thread->site);
  };
  if (between(control, 0x000, 0x0ff)) return (lane & ~3) + (control >> 2 * (lane & 3) & 3);
  if (between(control, 0x101, 0x10f)) return in_row + amount < kRow ? lane + amount : -1;
  if (between(control, 0x111, 0x11f)) return in_row >= amount ? lane - amount : -1;
  if (between(control, 0x121, 0x12f)) return row + ((in_row - amount) & 15);
  if (control == 0x140) return row + 15 - in_row;
  if (control == 0x141) return lane - in_row % 8 + 7 - in_row % 8;
  if (control == 0x142) return only_on(64, "row_bcast15"), row - 1;
  if (control == 0x143) return only_on(64, "row_bcast31"), lane >= 32 ? 31 : -1;
  if (between(control, 0x150, 0x15f)) return row + amount;
  if (between(control, 0x160, 0x16f)) return only_on(32, "row_xmask"), row + (in_row ^ amount);
  fault("unknown DPP control " + std::to_string(control), current_thread->site);
}

int update_dpp(int old, int value, int control, int row_mask, int bank_mask, bool bound_control,
               const Site& site) {
  meet(pack(value), site);
  const int self = lane();
  const bool enabled = (row_mask >> self / kRow & 1) && (bank_mask >> self % kRow / 4 & 1);
  if (!enabled) return old;
  const int source = dpp_source(self, control);
  if (came(source)) return take_from<int>(source);
  return bound_control ? 0 : old;
}

int permlanex16(int value, unsigned low, unsigned high, const Site& site) {
  if (warpSize != 32) fault("v_permlanex16 does not exist on devices with waves of 64", site);
  meet(pack(value), site);
  const int self = lane(), in_row = self % kRow, other_row = (self - in_row) ^ kRow;
  const unsigned selectors = in_row < 8 ? low : high;
  return take_from<int>(other_row + static_cast<int>(selectors >> 4 * (in_row % 8) & 15));
}

int swizzle(int value, int pattern, const Site& site) {
  meet(pack(value), site);
  const int self = lane();
  if (pattern & 0x8000) return take_from<int>((self & ~3) + (pattern >> 2 * (self & 3) & 3));
  const int keep = pattern & 31, set = pattern >> 5 & 31, flip = pattern >> 10 & 31;
  return take_from<int>((self & ~31) + (((self & keep) | set) ^ flip));
}

}  // namespace emulation
