// The launch plan, without a GPU: rows fit, every block has work, and the number of rows changes
// nothing but who does it.

#include <gtest/gtest.h>

#include <vector>

#include "gpu/backward_plan.hpp"
#include "gpu/launch_plan.hpp"

namespace simple_layernorm::gpu {
namespace {

/// What the plan sees: an H200, an MI300X, an MI210 and a Radeon RX 6800, by their data sheets.
const DeviceProperties kDevices[] = {{32, 132, Room::shared_memory},
                                     {64, 304, Room::registers_512},
                                     {64, 104, Room::registers_512},
                                     {32, 60, Room::registers_256}};

constexpr std::int64_t kRows[] = {1, 3, 100, 1000000};

/// 1 ... 70000, and lengths around powers of two beyond.
std::vector<std::int64_t> all_cols() {
  std::vector<std::int64_t> cols;
  for (std::int64_t n = 1; n <= 70000; ++n) cols.push_back(n);
  for (std::int64_t n = 131072; n <= std::int64_t{1} << 32; n *= 2) {
    for (std::int64_t offset : {-8, -1, 0, 1, 7, 8}) cols.push_back(n + offset);
  }
  return cols;
}

/// Calls f(rows, cols, element_size, device) for all of them.
template <class F>
void for_all(F f) {
  for (const DeviceProperties& device : kDevices) {
    for (int element_size : {2, 4, 8}) {
      for (std::int64_t cols : all_cols()) {
        for (std::int64_t rows : kRows) {
          f(rows, cols, element_size, device);
          if (testing::Test::HasFailure()) {
            FAIL() << rows << " x " << cols << " elements of " << element_size << " bytes, "
                   << device.multiprocessors << " multiprocessors, waves of " << device.wave;
          }
        }
      }
    }
  }
}

/// Whole packs of a row; the columns after them go to lanes of their own. One at least.
std::int64_t packs_of(std::int64_t cols, int element_size) {
  return std::max<std::int64_t>(cols * element_size / 16, 1);
}

/// That units of `size` packs, taken by index, hold each pack of a row once and none is left over.
void expect_covered(std::int64_t packs, std::int64_t units, std::int64_t size) {
  EXPECT_GE(units * size, packs);
  EXPECT_LT((units - 1) * size, packs);
}

/// How many packs a lane holds.
int packs_of_a_wave(const ForwardPlan& plan) {
  if (plan.kernel == ForwardKernel::split) return kWidePacks;
  return kBlockShapes[plan.shape].packs * kBlockShapes[plan.shape].segments;
}

TEST(ForwardPlan, EveryPackOfARowHasAPlaceAndEveryPieceHasWork) {
  for_all([](std::int64_t rows, std::int64_t cols, int size, const DeviceProperties& device) {
    const ForwardPlan plan = plan_forward(rows, cols, size, device);
    const std::int64_t packs = packs_of(cols, size);
    if (plan.kernel == ForwardKernel::lanes) {
      const LanesShape& shape = kLanesShapes[plan.shape];
      EXPECT_LE(shape.lanes, device.wave);
      expect_covered(packs, 1, shape.lanes * shape.packs);
    } else if (plan.kernel != ForwardKernel::general) {
      const std::int64_t block = plan.waves * packs_of_a_wave(plan) * device.wave;
      EXPECT_GE(plan.pieces * block, packs);
      EXPECT_EQ(plan.waves & (plan.waves - 1), 0) << "not a subtree";
      EXPECT_EQ(plan.pieces & (plan.pieces - 1), 0) << "not a subtree";
      EXPECT_LE(plan.pieces, device.multiprocessors) << "not all at the same time";
      if (plan.kernel == ForwardKernel::few_rows) {
        EXPECT_LE(rows * plan.pieces, device.multiprocessors) << "not all at the same time";
        EXPECT_LE(plan.pieces, plan.waves * device.wave) << "more messages than lanes";
      } else {
        EXPECT_EQ(plan.kernel == ForwardKernel::split, plan.pieces > 1);
      }
    } else {
      EXPECT_TRUE(size == 8 || packs > std::int64_t{1} << 16);
    }
  });
}

TEST(ForwardPlan, BlocksOfTheLanesKernelAreNotTooManyToStart) {
  // An H200 starts a block in 1.2 ns, in which it moves 2.4 KB of input and as much output.
  constexpr int kLeastBytes = 2400, kPackBytes = 16;
  for (int size : {2, 4}) {
    for (const LanesShape& shape : kLanesShapes) {
      const int packs = shape.packs * lanes_rows(shape, size, true);
      const int threads = lanes_threads(packs, true);
      EXPECT_GE(threads * packs * kPackBytes, kLeastBytes);
      EXPECT_GE(threads / shape.lanes, 1) << "a group";
    }
  }
}

TEST(ForwardPlan, OnlyTensorsFarBeyondTheL2CacheLeaveTheirRowsInIt) {
  DeviceProperties device = kDevices[0];
  EXPECT_FALSE(keeps_cached(std::int64_t{1} << 32, 4096, 4, device)) << "a cache of unknown size";
  device.l2_bytes = std::int64_t{60} << 20;
  EXPECT_TRUE(keeps_cached(std::int64_t{1} << 16, 4096, 4, device));
  EXPECT_TRUE(keeps_cached((std::int64_t{480} << 20) / 8192, 4096, 2, device));
  EXPECT_FALSE(keeps_cached((std::int64_t{480} << 20) / 8192 - 1, 4096, 2, device));
}

/// What fixes the order of a row's sums: the lanes, and the packs that each holds of a segment.
std::int64_t order_of(const ForwardPlan& plan) {
  if (plan.kernel == ForwardKernel::general) return 0;
  if (plan.kernel == ForwardKernel::lanes) return 1000 + plan.shape;
  return 2000 + (plan.kernel == ForwardKernel::split ? kWidePacks : kBlockShapes[plan.shape].packs);
}

TEST(ForwardPlan, TheOrderOfSumsDoesNotDependOnTheRows) {
  for_all([](std::int64_t rows, std::int64_t cols, int size, const DeviceProperties& device) {
    EXPECT_EQ(order_of(plan_forward(rows, cols, size, device)),
              order_of(plan_forward(1, cols, size, device)));
  });
}

TEST(ForwardPlan, BlocksThatMayNotWaitForEachOtherShareTheSameWaves) {
  for_all([](std::int64_t rows, std::int64_t cols, int size, const DeviceProperties& device) {
    const ForwardPlan plan = plan_forward(rows, cols, size, device);
    if (plan.pieces == 1) return;
    const ForwardPlan parts = plan_in_parts(plan);
    EXPECT_EQ(parts.kernel, ForwardKernel::few_rows);
    EXPECT_TRUE(parts.in_parts);
    EXPECT_EQ(order_of(parts), order_of(plan));
    EXPECT_LE(parts.waves, kMostWaves);
    EXPECT_EQ(parts.pieces * parts.waves, plan.pieces * plan.waves);
    if (device.room == Room::shared_memory) return;  // NVIDIA's need no parts
    EXPECT_LE(parts.pieces, parts.waves * device.wave) << "more messages than lanes";
  });
}

TEST(BackwardPlan, EveryPackOfARowHasAPlaceAndEveryBlockHasWork) {
  for_all([](std::int64_t rows, std::int64_t cols, int size, const DeviceProperties& device) {
    for (int grad_size : {size, size == 2 ? 4 : size}) {
      const BackwardPlan plan = plan_backward(rows, cols, size, grad_size, device);
      const std::int64_t packs = packs_of(cols, size);
      EXPECT_GE(plan.groups, 1);
      EXPECT_LE(plan.groups, rows);
      EXPECT_EQ(plan.threads % device.wave, 0);
      if (plan.kernel == BackwardKernel::lanes) {
        const BackwardLanesShape& shape = kBackwardLanesShapes[plan.shape];
        EXPECT_LE(shape.lanes, device.wave);
        expect_covered(packs, 1, shape.lanes * shape.packs);
        EXPECT_TRUE(exists(shape, device.room, elements_of(size, grad_size)));
      } else if (plan.kernel == BackwardKernel::block) {
        const BackwardBlockShape& shape = kBackwardBlockShapes[plan.shape];
        EXPECT_LE(plan.threads, shape.threads);
        expect_covered(packs, plan.threads / device.wave, shape.packs * device.wave);
        EXPECT_TRUE(exists(shape, device.room, elements_of(size, grad_size)));
      } else if (plan.kernel == BackwardKernel::split) {
        const BackwardSplitShape& shape = kBackwardSplitShapes[plan.shape];
        expect_covered(packs, plan.pieces, plan.threads * shape.packs);
        EXPECT_LE(plan.pieces, device.multiprocessors) << "not all at the same time";
        EXPECT_TRUE(exists(shape, device.room, elements_of(size, grad_size)));
      } else {
        EXPECT_TRUE(size == 8 || packs > std::int64_t{1} << 15);
      }
    }
  });
}

TEST(BackwardPlan, TheOrderOfSumsDoesNotDependOnTheRows) {
  for_all([](std::int64_t rows, std::int64_t cols, int size, const DeviceProperties& device) {
    const BackwardPlan plan = plan_backward(rows, cols, size, size, device);
    const BackwardPlan alone = plan_backward(1, cols, size, size, device);
    EXPECT_EQ(plan.kernel, alone.kernel);
    EXPECT_EQ(plan.shape, alone.shape);
    EXPECT_EQ(plan.threads, alone.threads);
    EXPECT_EQ(plan.pieces, alone.pieces);
  });
}

TEST(BackwardPlan, PartialSumsStayBehindWhatTheRowsTake) {
  for (const DeviceProperties& device : kDevices) {
    const BackwardPlan plan = plan_backward(std::int64_t{1} << 18, 1024, 2, 2, device);
    EXPECT_LT(plan.groups * 2 * 4, (std::int64_t{1} << 18) * 2 / 16);
  }
}

TEST(Plan, CanBeChosenByName) {
  EXPECT_EQ(chosen_room(nullptr, Room::shared_memory), Room::shared_memory);
  EXPECT_EQ(chosen_room("native", Room::shared_memory), Room::shared_memory);
  EXPECT_EQ(chosen_room("", Room::shared_memory), Room::shared_memory);
  EXPECT_EQ(chosen_room("portable", Room::shared_memory), Room::registers_512);
  EXPECT_EQ(chosen_room("portable", Room::registers_256), Room::registers_256);
  EXPECT_THROW(chosen_room("portabel", Room::shared_memory), std::invalid_argument);
  DeviceProperties device = kDevices[0];
  device.room = chosen_room("general", device.room);
  for (const std::int64_t cols : {64, 1024, 16384, 131072}) {
    EXPECT_EQ(plan_forward(100, cols, 2, device).kernel, ForwardKernel::general);
    EXPECT_EQ(plan_backward(100, cols, 2, 2, device).kernel, BackwardKernel::general);
  }
}

}  // namespace
}  // namespace simple_layernorm::gpu
