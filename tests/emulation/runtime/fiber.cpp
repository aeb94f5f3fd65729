// Fibers for x86-64: switching saves the registers that a function must preserve and changes
// stacks.

#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

// Present if the program was linked with AddressSanitizer, which must know the current stack.
extern "C" __attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake,
                                                                     const void* bottom,
                                                                     std::size_t size);
extern "C" __attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake,
                                                                      const void** bottom,
                                                                      std::size_t* size);
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* address,
                                                                    std::size_t size);

extern "C" void emulation_switch_stacks(void** saved, void* next);
asm(R"(
  .text
  .type emulation_switch_stacks, @function
emulation_switch_stacks:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
  .size emulation_switch_stacks, .-emulation_switch_stacks
)");

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr int kStacksPerSlab = 256;  // a mapping each would be more than the kernel allows
constexpr int kPreservedRegisters = 6;
constexpr std::uint64_t kUntouched = 0x5afe57ac5afe57acu;  // lies at the end of every stack

void* scheduler_stack_pointer;
const void* scheduler_stack_bottom;
std::size_t scheduler_stack_bytes;
Fiber* current;
std::vector<char*> free_stacks;

void make_stacks() {
  void* const memory = mmap(nullptr, kStackBytes * kStacksPerSlab, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  for (int i = kStacksPerSlab - 1; i >= 0; --i) {
    free_stacks.push_back(static_cast<char*>(memory) + kStackBytes * static_cast<std::size_t>(i));
  }
}

char* take_stack() {
  if (free_stacks.empty()) make_stacks();
  char* const stack = free_stacks.back();
  free_stacks.pop_back();
  return stack;
}

std::uint64_t& end_of(char* stack) { return *reinterpret_cast<std::uint64_t*>(stack); }

}  // namespace

Fiber::Fiber() : stack_(take_stack()) {}

Fiber::~Fiber() {
  if (stack_ != nullptr) free_stacks.push_back(stack_);
}

Fiber::Fiber(Fiber&& other) noexcept : stack_(other.stack_) { other.stack_ = nullptr; }

void Fiber::prepare(void (*entry)()) {
  entry_ = entry;
  if (__asan_unpoison_memory_region != nullptr) {
    __asan_unpoison_memory_region(stack_, kStackBytes);
  }
  end_of(stack_) = kUntouched;
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes) - 2;
  *top = reinterpret_cast<void*>(&Fiber::begin);
  stack_pointer_ = top - kPreservedRegisters;
}

void Fiber::begin() {
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_bottom, &scheduler_stack_bytes);
  }
  current->entry_();
  std::abort();
}

void Fiber::resume() {
  current = this;
  void* fake = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
  }
  emulation_switch_stacks(&scheduler_stack_pointer, stack_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
  }
}

void Fiber::suspend() {
  if (end_of(stack_) != kUntouched) {
    std::fprintf(stderr, "emulation: a thread's local variables do not fit its stack\n");
    std::abort();
  }
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&fake_stack_, scheduler_stack_bottom, scheduler_stack_bytes);
  }
  emulation_switch_stacks(&stack_pointer_, scheduler_stack_pointer);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fake_stack_, &scheduler_stack_bottom, &scheduler_stack_bytes);
  }
}

void Fiber::finish() {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(nullptr, scheduler_stack_bottom, scheduler_stack_bytes);
  }
  emulation_switch_stacks(&stack_pointer_, scheduler_stack_pointer);
  std::abort();
}

bool Fiber::owns(const void* address) const {
  const char* const p = static_cast<const char*>(address);
  return p >= stack_ && p < stack_ + kStackBytes;
}

}  // namespace emulation
