#!/usr/bin/env bash
# usage: tests/cpp/run_qemu.sh [BUILD_FOLDER]
# The tests of the CPU backend on machines that are not there: an x86-64 without AVX, where an
# instruction of a higher level ends the program, and an aarch64.
# Debian: qemu-user g++-aarch64-linux-gnu libgtest-dev googletest ninja-build
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$source/build/qemu}
tests="cpu_forward_test cpu_backward_test cpu_levels_test"
options="-G Ninja -DSIMPLE_LAYERNORM_GPU=OFF -DSIMPLE_LAYERNORM_TESTS=ON -DCMAKE_BUILD_TYPE=Release"

cmake -S "$source" -B "$build/x86_64" $options >/dev/null
cmake --build "$build/x86_64" --target $tests
for test in $tests; do
  echo "== $test, qemu-x86_64 -cpu Nehalem"
  qemu-x86_64 -cpu Nehalem "$build/x86_64/tests/cpp/$test" --gtest_brief=1
done

cross="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc
  -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;/usr/aarch64-linux-gnu"
cmake -S /usr/src/googletest -B "$build/googletest" -G Ninja $cross -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_INSTALL_PREFIX="$build/aarch64-prefix" >/dev/null
cmake --build "$build/googletest" --target install >/dev/null
cmake -S "$source" -B "$build/aarch64" $options $cross \
  -DGTest_DIR="$build/aarch64-prefix/lib/cmake/GTest" >/dev/null
cmake --build "$build/aarch64" --target $tests
for test in $tests; do
  echo "== $test, qemu-aarch64"
  qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/aarch64/tests/cpp/$test" --gtest_brief=1
done
