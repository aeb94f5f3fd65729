// Runs the GPU kernels on the CPU over all cases, and fails if a compiled kernel was never
// launched.
//
//   driver [forward|backward] [COLS ...]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "driver/case.hpp"

namespace emulation_tests {
namespace {

/// Which kernels were launched for which dtype of input.
using Coverage = std::map<const void*, std::set<std::string>>;

void record(Coverage& coverage, Dtype dtype) {
  for (const void* kernel : emulation::launched_kernels()) coverage[kernel].insert(name_of(dtype));
}

std::string without_template_arguments(const std::string& name) {
  return name.substr(0, name.find('<'));
}

/// Prints a line for each kernel template, a column for each dtype that reached it.
void print_paths(const Coverage& coverage) {
  std::vector<const void*> kernels;
  for (const auto& entry : coverage) kernels.push_back(entry.first);
  const std::vector<std::string> names = emulation::function_names(kernels);
  std::map<std::string, std::set<std::string>> paths;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const std::set<std::string>& dtypes = coverage.at(kernels[i]);
    paths[without_template_arguments(names[i])].insert(dtypes.begin(), dtypes.end());
  }
  const char* const dtypes[] = {"float32", "bfloat16", "float16", "float64"};
  std::printf("%-34s", "path");
  for (const char* dtype : dtypes) std::printf(" %-9s", dtype);
  for (const auto& [path, reached] : paths) {
    std::printf("\n%-34s", path.c_str());
    for (const char* dtype : dtypes) std::printf(" %-9s", reached.count(dtype) ? "yes" : "-");
  }
  std::printf("\n");
}

/// Prints the kernels that the compiler made and no case launched, and returns their number.
std::size_t print_missing(const Coverage& coverage) {
  std::vector<const void*> missing;
  for (const void* kernel : emulation::compiled_kernels()) {
    if (coverage.count(kernel) == 0) missing.push_back(kernel);
  }
  if (missing.empty()) return 0;
  for (const std::string& name : emulation::function_names(missing)) {
    std::printf("never launched: %s\n", name.c_str());
  }
  return missing.size();
}

bool run(bool forward, bool backward, const std::vector<std::int64_t>& cols) {
  const auto start = std::chrono::steady_clock::now();
  Coverage coverage;
  std::size_t cases = 0;
  const auto run_cases = [&](const std::vector<Case>& list, void (*check)(const Case&)) {
    for (const Case& c : list) {
      check(c);
      record(coverage, c.dtype);
      ++cases;
    }
  };
  if (forward) run_cases(forward_cases(cols), check_forward);
  if (backward) run_cases(backward_cases(cols), check_backward);
  print_paths(coverage);
  const bool complete = !(forward && backward) || print_missing(coverage) == 0;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu cases, waves of %d, %.1f s\n", cases, warpSize, seconds.count());
  return complete;
}

}  // namespace
}  // namespace emulation_tests

int main(int count, char** arguments) {
  const std::string pass = count > 1 ? arguments[1] : "";
  std::vector<std::int64_t> cols;
  for (int i = 2; i < count; ++i) cols.push_back(std::atoll(arguments[i]));
  if (cols.empty()) {
    cols = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 256, 257, 768, 1000, 1023, 2049};
  }
  return emulation_tests::run(pass != "backward", pass != "forward", cols) ? 0 : 1;
}
