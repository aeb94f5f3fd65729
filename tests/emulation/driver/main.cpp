// Runs the GPU kernels on the CPU over all cases, and fails if a compiled kernel was never
// launched.
//
//   driver [forward|backward] [DTYPE ...] [COLS ...]
//
// Arguments restrict what is run. With a dtype or columns, nothing is said to be missing.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <set>

#include "driver/case.hpp"
#include "driver/paths.hpp"

namespace emulation_tests {
namespace {

/// Which dtypes of input took which path.
using Coverage = std::map<std::string, std::set<Dtype>>;

/// Prints a line for each path and a column for each dtype; returns how many the plan has and no
/// case took.
int print_paths(const Coverage& planned, const Coverage& taken) {
  std::printf("%-44s", "path");
  for (Dtype dtype : kAllDtypes) std::printf(" %-9s", name_of(dtype));
  int missing = 0;
  for (const auto& [path, dtypes] : planned) {
    std::printf("\n%-44s", path.c_str());
    for (Dtype dtype : kAllDtypes) {
      const bool reached = taken.count(path) && taken.at(path).count(dtype);
      std::printf(" %-9s", !dtypes.count(dtype) ? "-" : reached ? "yes" : "MISSING");
      missing += dtypes.count(dtype) && !reached;
    }
  }
  std::printf("\n");
  return missing;
}

/// Prints the kernels that the compiler made and no case launched, of the passes that were run, and
/// returns their number.
int print_missing_kernels(const std::set<const void*>& launched, bool forward, bool backward) {
  std::vector<const void*> missing;
  for (const void* kernel : emulation::compiled_kernels()) {
    if (launched.count(kernel) == 0) missing.push_back(kernel);
  }
  int count = 0;
  for (const std::string& name : emulation::function_names(missing)) {
    const bool is_forward = name.find("forward") != std::string::npos;
    if (!(is_forward ? forward : backward)) continue;
    // A group of 64 lanes needs a wave of 64: on other devices that kernel is empty.
    if (warpSize == 32 && name.find("_lanes<") != std::string::npos &&
        name.find(", 64, ") != std::string::npos) {
      continue;
    }
    std::printf("never launched: %s\n", name.c_str());
    ++count;
  }
  return count;
}

struct Pass {
  std::string name;
  std::vector<Case> (*cases)(const std::vector<std::int64_t>& cols);
  void (*check)(const Case&);
  std::vector<Path> (*paths)(Dtype);
  std::string (*path_of)(const Case&);
};

const Pass kPasses[] = {
    {"forward", forward_cases, check_forward, forward_paths, forward_path},
    {"backward", backward_cases, check_backward, backward_paths, backward_path},
};

/// What the command line restricts a run to; empty means all.
struct Choice {
  std::set<std::string> words;  ///< names of passes and dtypes
  std::vector<std::int64_t> cols;

  bool takes(const Pass& pass) const {
    const bool names_a_pass = words.count("forward") || words.count("backward");
    return !names_a_pass || words.count(pass.name);
  }
  bool takes(Dtype dtype) const {
    bool names_a_dtype = false;
    for (Dtype d : kAllDtypes) names_a_dtype |= words.count(name_of(d)) > 0;
    return !names_a_dtype || words.count(name_of(dtype));
  }
  /// Whether all cases of the passes that are run.
  bool takes_all() const {
    return cols.empty() && words.size() == words.count("forward") + words.count("backward");
  }
};

bool run(const Choice& choice) {
  const auto start = std::chrono::steady_clock::now();
  Coverage planned, taken;
  std::size_t cases = 0;
  for (const Pass& pass : kPasses) {
    if (!choice.takes(pass)) continue;
    for (Dtype dtype : kAllDtypes) {
      if (!choice.takes(dtype)) continue;
      for (const Path& path : pass.paths(dtype)) planned[path.name].insert(dtype);
    }
    for (const Case& c : pass.cases(choice.cols)) {
      if (!choice.takes(c.dtype)) continue;
      pass.check(c);
      taken[pass.path_of(c)].insert(c.dtype);
      ++cases;
    }
  }
  int missing = 0;
  if (choice.takes_all()) {
    const std::vector<const void*> launched = emulation::launched_kernels();
    missing = print_paths(planned, taken) +
              print_missing_kernels({launched.begin(), launched.end()}, choice.takes(kPasses[0]),
                                    choice.takes(kPasses[1]));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%zu cases, waves of %d, %.1f s\n", cases, warpSize, seconds.count());
  return missing == 0;
}

}  // namespace
}  // namespace emulation_tests

int main(int count, char** arguments) {
  emulation_tests::Choice choice;
  for (int i = 1; i < count; ++i) {
    if (const std::int64_t cols = std::atoll(arguments[i])) {
      choice.cols.push_back(cols);
    } else {
      choice.words.insert(arguments[i]);
    }
  }
  try {
    return emulation_tests::run(choice) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the library threw: %s\n  case      %s\n  schedule  %s\n", error.what(),
                 emulation::current_case.c_str(), emulation::schedule.text().c_str());
    return 1;
  }
}
