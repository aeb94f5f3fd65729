// Watches every access to memory. The kernel files are compiled with -fsanitize=thread, for the
// calls that the compiler then puts before each load and store; they end here instead of in its
// library.

#include "access_hooks.hpp"

#include "fault.hpp"
#include "grid.hpp"
#include "memory.hpp"

namespace emulation {
namespace {

bool hooked = false;

/// What an address belongs to.
struct Place {
  const char* memory = nullptr;
  Shadow* shadow = nullptr;
  std::size_t offset = 0;
  bool read_only = false;
};

Place place_of(const void* address) {
  Place place;
  if (Shadow* shadow = current_block->shared.find(address, place.offset)) {
    place.memory = "shared memory";
    place.shadow = shadow;
  } else if (Allocation* allocation = find_allocation(address)) {
    place.memory = "device memory";
    place.shadow = &allocation->shadow;
    place.offset = static_cast<std::size_t>(static_cast<const char*>(address) - allocation->begin);
    place.read_only = allocation->read_only;
  }
  return place;
}

std::string problem_with(const void* address, std::size_t bytes, bool writes, int atomic_scope,
                         bool is_copy) {
  const Place place = place_of(address);
  if (place.shadow == nullptr) {
    // A thread's own variables; the kernel's arguments and constants, which are only read.
    if (!writes || current_thread->fiber.owns(address)) return {};
    return "writes to neither device memory nor shared memory";
  }
  const std::size_t size = place.shadow->bytes();
  std::string problem;
  if (place.offset >= size || bytes > size - place.offset) {
    problem = "reaches out of bounds";
  } else if (writes && place.read_only) {
    problem = "writes to an input";
  } else {
    const Access access{static_cast<std::int32_t>(current_block->linear),
                        static_cast<std::int16_t>(current_thread->linear),
                        static_cast<std::int16_t>(atomic_scope),
                        current_block->barriers_passed,
                        writes,
                        is_copy};
    problem = place.shadow->note(access, place.offset, bytes);
  }
  if (problem.empty()) return {};
  return problem + " (" + std::to_string(bytes) + " bytes at byte " +
         std::to_string(static_cast<std::ptrdiff_t>(place.offset)) + " of " + std::to_string(size) +
         " of " + place.memory + ")";
}

void note(const void* address, std::size_t bytes, bool writes, const void* code,
          bool is_copy = false) {
  // A thread that does not run is one that a report speaks of.
  if (current_thread == nullptr || current_thread->state != State::ready) return;
  const std::string problem = problem_with(address, bytes, writes, 0, is_copy);
  if (!problem.empty()) fault(problem, source_line(code));
}

}  // namespace

bool watches_accesses() { return hooked; }

void note_atomic(const void* address, std::size_t bytes, bool writes, int scope, const Site& site) {
  if (!hooked) return;
  const std::string problem = problem_with(address, bytes, writes, scope, false);
  if (!problem.empty()) fault(problem, site);
}

}  // namespace emulation

#define EMULATION_HOOKS(bytes)                                     \
  void __tsan_read##bytes(void* p) {                               \
    emulation::note(p, bytes, false, __builtin_return_address(0)); \
  }                                                                \
  void __tsan_write##bytes(void* p) {                              \
    emulation::note(p, bytes, true, __builtin_return_address(0));  \
  }

extern "C" {
EMULATION_HOOKS(1)
EMULATION_HOOKS(2)
EMULATION_HOOKS(4)
EMULATION_HOOKS(8)
EMULATION_HOOKS(16)
void __tsan_read_range(void* p, std::size_t bytes) {
  emulation::note(p, bytes, false, __builtin_return_address(0), true);
}
void __tsan_write_range(void* p, std::size_t bytes) {
  emulation::note(p, bytes, true, __builtin_return_address(0));
}
void __tsan_vptr_update(void*, void*) {}
/// Host code's guards of static variables.
char __tsan_atomic8_load(const volatile char* p, int) {
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
void __tsan_init() { emulation::hooked = true; }
}
