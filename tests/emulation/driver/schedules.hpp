// The schedules under which every case must give the same bits.
#pragma once

#include <vector>

#include "driver/case.hpp"
#include "runtime/schedule.hpp"

namespace emulation_tests {

/// Orders forward, backward and shuffled, for threads and blocks; memory that nobody has written
/// holds NaN in some and ordinary numbers in others, which no sum swallows the same way. Blocks
/// that wait for each other do so in all of them but the second, of a graph's capture.
inline std::vector<emulation::Schedule> schedules(const Case& c, bool waits) {
  using emulation::Order;
  constexpr std::uint16_t kNan = 0x7ff5, kNumber = 0x4a4a;
  // One block at a time where rows are split, so that few groups of blocks share many rows.
  const int blocks = c.heavy ? 1 : 4;
  std::vector<emulation::Schedule> schedules = {
      {Order::forward, Order::forward, 1, kNan, c.multiprocessors, blocks},
  };
  if (waits) {
    schedules.push_back(schedules.front());
    schedules.back().is_capturing = true;
  }
  schedules.push_back({Order::shuffled, Order::shuffled, 7, kNumber, c.multiprocessors, blocks});
  if (!c.heavy) {
    schedules.push_back({Order::backward, Order::backward, 1, kNan, c.multiprocessors, blocks});
  }
  return schedules;
}

}  // namespace emulation_tests
