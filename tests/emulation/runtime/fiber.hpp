// A fiber: a stack and a place to go on at. Knows nothing of GPUs.
#pragma once

#include <cstddef>

namespace emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(Fiber&&) noexcept;
  Fiber& operator=(Fiber&&) = delete;

  /// Arranges that the next resume() calls entry(), which must end in finish().
  void prepare(void (*entry)());

  /// Runs the fiber until it calls suspend() or finish(). Not to be called from a fiber.
  void resume();

  /// Called by the fiber itself: returns from resume(), for good in the case of finish().
  void suspend();
  [[noreturn]] void finish();

  bool owns(const void* address) const;

 private:
  char* stack_ = nullptr;
  void* stack_pointer_ = nullptr;
  void* fake_stack_ = nullptr;  ///< AddressSanitizer's
  void (*entry_)() = nullptr;
  static void begin();
};

}  // namespace emulation
