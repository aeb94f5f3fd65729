// Which devices a build's list of architectures serves.

#include <gtest/gtest.h>

#include "gpu/architectures.hpp"

namespace simple_layernorm::gpu {
namespace {

TEST(Architectures, AnAmdNameServesThatDeviceAlone) {
  EXPECT_TRUE(any_runs_on("gfx90a;gfx1030", "gfx90a"));
  EXPECT_TRUE(any_runs_on("gfx90a;gfx1030", "gfx1030"));
  EXPECT_FALSE(any_runs_on("gfx90a;gfx1030", "gfx1031"));
  EXPECT_FALSE(any_runs_on("gfx90a;gfx1030", "gfx103"));
  EXPECT_FALSE(any_runs_on("gfx90a;gfx1030", "gfx90"));
}

TEST(Architectures, FeaturesOfAnAmdNameAreLeftToTheRuntime) {
  EXPECT_TRUE(any_runs_on("gfx90a:xnack-", "gfx90a"));
  EXPECT_FALSE(any_runs_on("gfx90a:xnack-", "gfx942"));
}

TEST(Architectures, CudaMachineCodeServesLaterMinorsOfItsMajor) {
  EXPECT_TRUE(any_runs_on("sm_80", "sm_80"));
  EXPECT_TRUE(any_runs_on("sm_80", "sm_89"));
  EXPECT_FALSE(any_runs_on("sm_86", "sm_80"));
  EXPECT_FALSE(any_runs_on("sm_80", "sm_90"));
  EXPECT_FALSE(any_runs_on("sm_90", "sm_100"));
  EXPECT_TRUE(any_runs_on("sm_120", "sm_121"));
}

TEST(Architectures, CudaPortableCodeServesEverythingLater) {
  EXPECT_TRUE(any_runs_on("compute_80", "sm_80"));
  EXPECT_TRUE(any_runs_on("sm_75;compute_80", "sm_90"));
  EXPECT_TRUE(any_runs_on("compute_90", "sm_120"));
  EXPECT_FALSE(any_runs_on("compute_90", "sm_89"));
}

TEST(Architectures, CudaSpecificCodeServesOneCapability) {
  EXPECT_TRUE(any_runs_on("sm_90a", "sm_90"));
  EXPECT_FALSE(any_runs_on("sm_90a", "sm_100"));
  EXPECT_FALSE(any_runs_on("compute_90a", "sm_100"));
}

TEST(Architectures, AnEmptyListServesNothing) {
  EXPECT_FALSE(any_runs_on("", "sm_90"));
  EXPECT_FALSE(any_runs_on("", "gfx90a"));
}

}  // namespace
}  // namespace simple_layernorm::gpu
