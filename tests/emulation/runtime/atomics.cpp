// Atomic accesses. One thread runs at a time, so that every access is atomic by itself; what
// matters is who runs in between, and whether the search for races may take it for ordered.

#include <cstring>

#include "access_hooks.hpp"
#include "fault.hpp"
#include "grid.hpp"
#include "schedule.hpp"

namespace emulation {
namespace {

std::uint64_t read(const void* address, int bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, address, static_cast<std::size_t>(bytes));
  return value;
}

void write(void* address, int bytes, std::uint64_t value) {
  std::memcpy(address, &value, static_cast<std::size_t>(bytes));
}

void check_alignment(const void* address, int bytes, const Site& site) {
  if (reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0) return;
  fault("an atomic access of " + std::to_string(bytes) + " bytes is misaligned", site);
}

}  // namespace

std::uint64_t atomic_load(const void* address, int bytes, int scope, const Site& site) {
  check_alignment(address, bytes, site);
  if (!is_in_order && !schedule.is_capturing) {
    fault("reads another block's message where other streams may keep that block out", site);
  }
  wait_as(State::polling, site);
  note_atomic(address, static_cast<std::size_t>(bytes), false, scope, site);
  return read(address, bytes);
}

void atomic_store(void* address, int bytes, std::uint64_t value, int scope, const Site& site) {
  check_alignment(address, bytes, site);
  note_atomic(address, static_cast<std::size_t>(bytes), true, scope, site);
  write(address, bytes, value);
  ++progress;
}

std::uint64_t atomic_update(void* address, int bytes, Update update, std::uint64_t operand,
                            int scope, const Site& site) {
  check_alignment(address, bytes, site);
  wait_as(State::ready, site);
  note_atomic(address, static_cast<std::size_t>(bytes), false, scope, site);
  note_atomic(address, static_cast<std::size_t>(bytes), true, scope, site);
  const std::uint64_t before = read(address, bytes);
  write(address, bytes, update == Update::add ? before + operand : operand);
  ++progress;
  return before;
}

void fence(int) {}

void yield() { wait_as(State::polling, {"s_sleep", nullptr, 0}); }

}  // namespace emulation
