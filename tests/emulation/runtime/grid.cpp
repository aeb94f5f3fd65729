// Runs a grid: some blocks at a time, as a device would have them resident, each thread a fiber.
// The schedule decides who runs first; a missing barrier or a dependence on luck shows in some
// order.

#include "grid.hpp"

#include <signal.h>
#include <unistd.h>

#include <list>
#include <numeric>
#include <random>

#include "device.hpp"
#include "fault.hpp"
#include "schedule.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {
namespace {

/// Turns of all resident blocks without progress after which a grid is said to hang. Waiting for a
/// value from another block takes a few.
constexpr int kMostIdleTurns = 2000;
constexpr unsigned kMostSecondsPerGrid = 60;

void thread_main() {
  current_launch->body();
  current_thread->state = State::finished;
  ++progress;
  current_thread->fiber.finish();
}

template <class T>
void arrange(std::vector<T>& items, Order order, std::mt19937& random) {
  if (order == Order::backward) std::reverse(items.begin(), items.end());
  if (order == Order::shuffled) std::shuffle(items.begin(), items.end(), random);
}

void resume(Thread& thread) {
  current_thread = &thread;
  threadIdx = thread.index;
  thread.state = State::ready;
  thread.fiber.resume();
  current_thread = nullptr;
}

void release_barrier(Block& block) {
  const Thread* first = nullptr;
  for (Thread& thread : block.threads) {
    if (thread.state != State::at_barrier && thread.state != State::finished) return;
    if (first == nullptr && thread.state == State::at_barrier) first = &thread;
  }
  if (first == nullptr) return;
  for (Thread& thread : block.threads) {
    current_thread = &thread;
    if (thread.state == State::finished) {
      fault("has returned while others of its block wait at __syncthreads", first->site);
    }
    if (!(thread.site == first->site)) {
      fault("waits at another __syncthreads than thread " + std::to_string(first->linear) + " at " +
                first->site.file + ":" + std::to_string(first->site.line),
            thread.site);
    }
  }
  current_thread = nullptr;
  for (Thread& thread : block.threads) thread.state = State::ready;
  ++block.barriers_passed;
  ++progress;
}

/// Gives every thread of the block that can run a turn.
void run_turn(Block& block, std::mt19937& random) {
  current_block = &block;
  blockIdx = block.index;
  static std::vector<int> order;
  order.resize(block.threads.size());
  std::iota(order.begin(), order.end(), 0);
  arrange(order, schedule.threads, random);
  block.shared.bring_in();
  for (int i : order) {
    Thread& thread = block.threads[i];
    if (thread.state == State::ready || thread.state == State::polling) resume(thread);
  }
  block.shared.take_out();
  if (!release_waves(block)) release_barrier(block);
  current_block = nullptr;
}

bool only_polls(const Block& block) {
  return std::none_of(block.threads.begin(), block.threads.end(),
                      [](const Thread& t) { return t.state == State::ready; });
}

[[noreturn]] void report_hang(std::list<Block>& resident, const char* what) {
  for (Block& block : resident) {
    for (Thread& thread : block.threads) {
      if (thread.state != State::polling) continue;
      current_block = &block;
      current_thread = &thread;
      fault(what, thread.site);
    }
  }
  fault(what);
}

void report_timeout(int) {
  fault("a grid ran for " + std::to_string(kMostSecondsPerGrid) +
        " s: does a thread wait for a plain load to change?");
}

}  // namespace

Block::Block(const Launch& launch, std::int64_t linear)
    : linear(linear), threads(launch.block.x), shared(launch.shared_bytes) {
  index = {static_cast<unsigned>(linear), 0, 0};
  for (unsigned i = 0; i < launch.block.x; ++i) {
    threads[i].index = {i, 0, 0};
    threads[i].linear = static_cast<int>(i);
    threads[i].state = State::ready;
    threads[i].fiber.prepare(thread_main);
  }
}

bool Block::finished() const {
  return std::all_of(threads.begin(), threads.end(),
                     [](const Thread& t) { return t.state == State::finished; });
}

void wait_as(State state, const Site& site) {
  current_thread->state = state;
  current_thread->site = site;
  current_thread->fiber.suspend();
}

void barrier(const Site& site) { wait_as(State::at_barrier, site); }

void* dynamic_shared_memory() { return current_block->shared.dynamic(); }

void run_grid(const Launch& launch, int resident_blocks) {
  const HostStatics kept;
  ++grids_launched;
  current_launch = &launch;
  blockDim = launch.block;
  gridDim = launch.grid;
  signal(SIGALRM, report_timeout);
  alarm(kMostSecondsPerGrid);

  std::mt19937 random(schedule.seed);
  std::vector<std::int64_t> waiting(launch.grid.x);
  std::iota(waiting.begin(), waiting.end(), 0);
  arrange(waiting, schedule.blocks, random);
  std::reverse(waiting.begin(), waiting.end());

  std::list<Block> resident;
  std::int64_t last_progress = progress;
  for (int idle_turns = 0; !waiting.empty() || !resident.empty(); ++idle_turns) {
    while (!waiting.empty() && static_cast<int>(resident.size()) < resident_blocks) {
      resident.emplace_back(launch, waiting.back());
      waiting.pop_back();
    }
    for (auto block = resident.begin(); block != resident.end();) {
      // In the shuffled order blocks interleave finely; else each goes as far as it can alone.
      const int turns = schedule.blocks == Order::shuffled ? 1 + random() % 4 : kMostIdleTurns;
      for (int i = 0; i < turns; ++i) {
        run_turn(*block, random);
        if (only_polls(*block)) break;
      }
      block = block->finished() ? resident.erase(block) : std::next(block);
    }
    if (progress != last_progress) idle_turns = 0;
    last_progress = progress;
    if (idle_turns > kMostIdleTurns) report_hang(resident, "waits for a value that never comes");
  }
  alarm(0);
  current_launch = nullptr;
}

}  // namespace emulation
