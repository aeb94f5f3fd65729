// Messages between the blocks that share a row, before there are any: see handover.hpp.

#include "gpu/handover.hpp"

#include "gpu/launch.hpp"
#include "gpu/launch_plan.hpp"

namespace simple_layernorm::gpu {
namespace {

constexpr int kFillThreads = 256;

__global__ void __launch_bounds__(kFillThreads)
    fill_with_nothing(std::uint64_t* words, std::int64_t count) {
  await_earlier_work();
  const std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x;
  if (i < count) words[i] = kNothing;
}

}  // namespace

void launch_fill(void* messages, std::size_t bytes, void* stream) {
  const auto count = static_cast<std::int64_t>(bytes / sizeof(std::uint64_t));
  launch(fill_with_nothing, {divide_up(count, kFillThreads), kFillThreads, 0, stream},
         static_cast<std::uint64_t*>(messages), count);
}

}  // namespace simple_layernorm::gpu
