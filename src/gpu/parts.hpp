// The work on rows that several blocks share, as one launch or as several. Such blocks wait for
// each other's messages (see handover.hpp), so that all must run at the same time.
#pragma once

#include <cstdint>

#include "gpu/launch.hpp"

namespace simple_layernorm::gpu {

/// What a launch does of it. In parts, a launch for each attempt does no more than send its
/// messages (the second receives those of the first before), and a last one receives what is there:
/// no block waits. NVIDIA's GPUs need no parts, and kernels for them know none.
class Part {
 public:
  static Part whole() { return Part(kAllMessages); }
  /// That ends when it has sent the messages of an attempt.
  static Part sending(int attempt) { return Part((1u | kEnds) << attempt); }
  static Part last() { return Part(0); }

  __device__ bool sends(int attempt) const { return !kRunsInParts || (bits_ >> attempt & 1u) != 0; }
  __device__ bool ends_with(int attempt) const {
    return kRunsInParts && (bits_ >> attempt & kEnds) != 0;
  }

 private:
  explicit Part(std::uint32_t bits) : bits_(bits) {}

  static constexpr std::uint32_t kAllMessages = 0xff, kEnds = 0x100;
  std::uint32_t bits_;  ///< 0 to 7: sends the messages of this attempt; 8 to 15: ends with them
};

/// Queues the whole work by launch(part), or that of each part, of which as many send messages as a
/// row has attempts.
template <class Launch>
void launch_shared_rows(int attempts, bool in_parts, void* stream, Launch launch) {
  if (!in_parts) return launch_in_turn(stream, [&] { launch(Part::whole()); });
  for (int attempt = 0; attempt < attempts; ++attempt) launch(Part::sending(attempt));
  launch(Part::last());
}

}  // namespace simple_layernorm::gpu
