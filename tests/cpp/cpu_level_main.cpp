// main() of the tests that run once per level: a level that this machine lacks skips them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "simple_layernorm/cpu.hpp"

namespace {

class Level : public testing::Environment {
  void SetUp() override {
    const char* wanted = std::getenv("SIMPLE_LAYERNORM_CPU_LEVEL");
    const std::string level = simple_layernorm::cpu::level();
    if (wanted == nullptr || wanted == level) return;
    // Every machine has the baseline, and a higher level contains a lower one.
    ASSERT_STRNE(wanted, "baseline");
    ASSERT_FALSE(level == "avx512" && std::string(wanted) == "avx2");
    GTEST_SKIP() << "this machine has no " << wanted;
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new Level);
  return RUN_ALL_TESTS();
}
