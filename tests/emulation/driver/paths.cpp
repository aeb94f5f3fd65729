// Paths as the launch plan has them. The plan is a step function of cols for given rows and device:
// its steps are found by doubling and halving.

#include "driver/paths.hpp"

#include <algorithm>
#include <functional>

#include "gpu/backward_plan.hpp"
#include "gpu/launch_plan.hpp"
#include "hip/hip_runtime.h"

namespace emulation_tests {
namespace {

using namespace simple_layernorm::gpu;
using Planner = std::function<std::string(std::int64_t rows, std::int64_t cols, int device)>;

// Up to which length paths are looked for: as far as lanes take several messages each. Such rows
// take seconds, so that float32 stands for all dtypes there.
std::int64_t most_forward_cols(Dtype dtype) { return dtype == Dtype::float32 ? 1200000 : 300000; }
std::int64_t most_backward_cols(Dtype dtype) { return dtype == Dtype::float32 ? 200000 : 60000; }

DeviceProperties properties_of(int multiprocessors) {
  DeviceProperties device;
  device.wave = warpSize;
  device.multiprocessors = multiprocessors;
  device.room = warpSize == 64         ? Room::registers_512
                : multiprocessors == 3 ? Room::registers_256
                : multiprocessors == 5 ? Room::registers_512
                                       : Room::shared_memory;
  return device;
}

std::string name_of(const ForwardPlan& plan, int wave) {
  if (plan.kernel == ForwardKernel::general) return "forward general";
  const std::string shape = std::to_string(plan.shape);
  if (plan.kernel == ForwardKernel::lanes) return "forward lanes, shape " + shape;
  const std::string shape_and_waves = shape + ", " + std::to_string(plan.waves) + " waves";
  if (plan.kernel == ForwardKernel::block) return "forward block, shape " + shape_and_waves;
  // The number of messages that a lane receives makes a difference, that of pieces none. For few
  // rows it is that of waves which receive messages.
  const int run = std::max(1, plan.pieces / wave);
  if (plan.kernel == ForwardKernel::few_rows) {
    return "forward few rows, shape " + shape_and_waves + ", " +
           (plan.pieces == 1 ? "whole rows" : std::to_string(run) + " receive");
  }
  return "forward split, shape " + shape + ", " + std::to_string(run) + " a lane";
}

std::string forward_name(std::int64_t rows, std::int64_t cols, Dtype dtype, int multiprocessors) {
  const DeviceProperties device = properties_of(multiprocessors);
  const int size = static_cast<int>(simple_layernorm::size_of(dtype));
  return name_of(plan_forward(rows, cols, size, device), device.wave);
}

std::string backward_name(std::int64_t rows, std::int64_t cols, Dtype dtype, Dtype grad_dtype,
                          int multiprocessors) {
  const auto size = [](Dtype d) { return static_cast<int>(simple_layernorm::size_of(d)); };
  const BackwardPlan plan =
      plan_backward(rows, cols, size(dtype), size(grad_dtype), properties_of(multiprocessors));
  const char* const kernels[] = {"general", "lanes", "block", "split"};
  const std::string name = std::string("backward ") + kernels[static_cast<int>(plan.kernel)];
  if (plan.kernel == BackwardKernel::general) return name;
  // As for the forward pass, but that the number of a lane's messages has no limit.
  const bool several = plan.pieces > warpSize;
  return name + ", shape " + std::to_string(plan.shape) + (several ? ", several a lane" : "");
}

std::vector<Path> find_paths(std::int64_t most_cols, const Planner& plan) {
  std::vector<Path> paths;
  // How many rows there are per multiprocessor decides into how many pieces a row is split.
  for (int multiprocessors : {1, 3, 4, 5, 16, 128}) {
    for (std::int64_t rows : {1, 3}) {
      for (std::int64_t first = 1; first <= most_cols;) {
        const std::string name = plan(rows, first, multiprocessors);
        std::int64_t last = first, step = 1;
        while (step > 0) {
          const bool same =
              last + step <= most_cols && plan(rows, last + step, multiprocessors) == name;
          if (same) last += step;
          step = same ? step * 2 : step / 2;
        }
        const auto known = [&](const Path& p) { return p.name == name; };
        const auto found = std::find_if(paths.begin(), paths.end(), known);
        const Path path{name, rows, first, last, multiprocessors};
        if (found == paths.end()) {
          paths.push_back(path);
        } else if (first < found->first_cols) {
          *found = path;
        }
        first = last + 1;
      }
    }
  }
  return paths;
}

}  // namespace

bool waits(const std::string& path) {
  return path.find(" split,") != std::string::npos || path.find(" receive") != std::string::npos;
}

std::vector<Path> forward_paths(Dtype dtype) {
  return find_paths(most_forward_cols(dtype),
                    [=](std::int64_t rows, std::int64_t cols, int device) {
                      return forward_name(rows, cols, dtype, device);
                    });
}

std::string forward_path(const Case& c) {
  return forward_name(c.rows, c.cols, c.dtype, c.multiprocessors);
}

std::vector<Path> backward_paths(Dtype dtype) {
  return find_paths(most_backward_cols(dtype),
                    [=](std::int64_t rows, std::int64_t cols, int device) {
                      return backward_name(rows, cols, dtype, dtype, device);
                    });
}

std::string backward_path(const Case& c) {
  return backward_name(c.rows, c.cols, c.dtype, c.output_dtype(), c.multiprocessors);
}

}  // namespace emulation_tests
