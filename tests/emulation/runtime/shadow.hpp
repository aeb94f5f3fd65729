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
  std::int64_t block;
  int thread;
  unsigned epoch;  ///< barriers that the block has passed
  bool writes;
  int atomic_scope = 0;  ///< 0 for a plain access, else one of HIP's memory scopes
};

/// Shadow of a range of bytes.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes) : cells_(bytes) {}

  std::size_t bytes() const { return cells_.size(); }
  void initialise(std::size_t offset, std::size_t count);

  /// Notes the access, and says what is wrong with it; empty if nothing is.
  std::string note(const Access& access, std::size_t offset, std::size_t count);

 private:
  /// The last threads that touched a byte in one way.
  struct Mark {
    std::int64_t block = kNone;
    int thread = 0;
    unsigned epoch = 0;
    int atomic_scope = 0;
  };
  struct Cell {
    Mark write, read;
    std::int64_t grid = 0;  ///< number of the launch that the marks belong to
    bool initialised = false;
  };
  static constexpr std::int64_t kNone = -1, kSeveralBlocks = -2;
  static constexpr int kSeveralThreads = -1;

  static bool is_ordered(const Mark& earlier, const Access& later);
  static void add_reader(Mark& mark, const Access& access);
  static std::string text(const Mark& mark);

  std::vector<Cell> cells_;
};

/// Numbers the launches: whatever an earlier one did is ordered before all of this one.
inline std::int64_t grids_launched = 0;

}  // namespace emulation
