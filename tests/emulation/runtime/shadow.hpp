// What the emulation remembers about each piece of memory: who wrote it, who read it, and whether
// anybody has written it at all. An access that nothing orders after another one is a race, even if
// the numbers came out right this time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulation {

/// An access by a thread of the running grid.
struct Access {
  std::int32_t block;
  std::int16_t thread;
  std::int16_t atomic_scope;  ///< 0 for a plain access, else one of HIP's memory scopes
  std::uint32_t epoch;        ///< barriers that the block has passed
  bool writes;
  bool is_copy = false;  ///< of a whole object, whose padding nobody may have written
};

/// Shadow of a range of bytes, kept for every two: no element is smaller.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes) : bytes_(bytes), cells_((bytes + 1) / 2) {}

  std::size_t bytes() const { return bytes_; }
  void initialise(std::size_t offset, std::size_t count);

  /// Notes the access, and says what is wrong with it; empty if nothing is.
  std::string note(const Access& access, std::size_t offset, std::size_t count);

 private:
  /// The last threads that touched a byte in one way.
  struct Mark {
    std::int32_t block = kNone;
    std::int16_t thread = 0;
    std::int16_t atomic_scope = 0;
    std::uint32_t epoch = 0;
  };
  struct Cell {
    Mark write, read;
    std::uint32_t grid = 0;  ///< number of the launch that the marks belong to
    bool initialised = false;
  };
  static constexpr std::int32_t kNone = -1, kSeveralBlocks = -2;
  static constexpr std::int16_t kSeveralThreads = -1;

  static bool is_ordered(const Mark& earlier, const Access& later);
  static void add_reader(Mark& mark, const Access& access);
  static std::string text(const Mark& mark);

  std::size_t bytes_;
  std::vector<Cell> cells_;
};

/// Numbers the launches: whatever an earlier one did is ordered before all of this one.
inline std::uint32_t grids_launched = 0;

}  // namespace emulation
