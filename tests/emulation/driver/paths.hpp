// The paths that launch_plan.hpp knows, found by asking it, and a problem that takes each.
#pragma once

#include <string>
#include <vector>

#include "driver/case.hpp"

namespace emulation_tests {

/// A path through the kernels, and the columns for which a device takes it.
struct Path {
  std::string name;
  std::int64_t rows, first_cols, last_cols;
  int multiprocessors;
};

/// All paths of a dtype, each once, with the narrowest columns that lead there.
std::vector<Path> forward_paths(Dtype dtype);
std::vector<Path> backward_paths(Dtype dtype);

/// Whether blocks wait for each other there.
bool waits(const std::string& path);

/// The path that a case takes.
std::string forward_path(const Case& c);
std::string backward_path(const Case& c);

}  // namespace emulation_tests
