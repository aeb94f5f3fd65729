// The schedules under which every case must give the same bits.
#pragma once

#include <vector>

#include "runtime/schedule.hpp"

namespace emulation_tests {

/// Orders forward, backward and shuffled, for threads and blocks; memory that nobody has written
/// holds NaN in some and ordinary numbers in others, which no sum swallows the same way.
inline std::vector<emulation::Schedule> schedules(int multiprocessors) {
  using emulation::Order;
  constexpr std::uint16_t kNan = 0x7ff5, kNumber = 0x4a4a;
  return {
      {Order::forward, Order::forward, 1, kNan, multiprocessors, 2},
      {Order::backward, Order::backward, 1, kNumber, multiprocessors, 2},
      {Order::shuffled, Order::shuffled, 7, kNan, multiprocessors, 2},
  };
}

}  // namespace emulation_tests
