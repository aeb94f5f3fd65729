// How a kernel's mistake is reported: what, in which kernel, block, thread and line, and in which
// case and schedule it can be seen again. Then the program ends.
#pragma once

#include <string>

#include "hip/hip_runtime.h"

namespace emulation {

[[noreturn]] void fault(const std::string& what, const std::string& source = "");
[[noreturn]] void fault(const std::string& what, const Site& site);

/// "file:line" of an address of code.
std::string source_line(const void* code);

}  // namespace emulation
