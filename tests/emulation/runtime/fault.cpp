// Fault messages. Names come from the debug information, by addr2line.

#include "fault.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "grid.hpp"
#include "schedule.hpp"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace emulation {
namespace {

std::string text_of(Order order) {
  return order == Order::forward ? "forward" : order == Order::backward ? "backward" : "shuffled";
}

/// addr2line's answer: for each address a line with its function and a line with its place.
std::vector<std::string> look_up(const std::vector<const void*>& addresses) {
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return {};
  std::ostringstream command;
  command << "addr2line -C -f -e '" << program << "'";
  for (const void* address : addresses) command << ' ' << address;
  std::vector<std::string> lines(1);
  if (FILE* pipe = popen(command.str().c_str(), "r")) {
    for (int c; (c = std::fgetc(pipe)) != EOF;) {
      if (c == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += static_cast<char>(c);
      }
    }
    pclose(pipe);
  }
  return lines;
}

std::string without_namespaces(std::string name) {
  for (const std::string noise :
       {"simple_layernorm::", "gpu::", "(anonymous namespace)::", "void "}) {
    for (std::size_t at; (at = name.find(noise)) != std::string::npos;)
      name.erase(at, noise.size());
  }
  return name.substr(0, name.find('('));
}

void print_place() {
  std::fprintf(stderr, "  case      %s\n", current_case.c_str());
  if (current_launch != nullptr) {
    std::fprintf(stderr, "  kernel    %s, %u blocks of %u threads\n",
                 function_names({current_launch->kernel}).front().c_str(), current_launch->grid.x,
                 current_launch->block.x);
  }
  if (current_block != nullptr && current_thread != nullptr) {
    std::fprintf(stderr, "  thread    %d (wave %d, lane %d) of block %ld\n", current_thread->linear,
                 current_thread->linear / warpSize, current_thread->linear % warpSize,
                 static_cast<long>(current_block->linear));
  }
  std::fprintf(stderr, "  schedule  %s\n", schedule.text().c_str());
}

/// AddressSanitizer's own reports name no thread of the grid.
const bool reports_completed = [] {
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_place);
  return true;
}();

}  // namespace

std::string Schedule::text() const {
  return "waves of " + std::to_string(warpSize) + ", threads " + text_of(threads) + ", blocks " +
         text_of(blocks) + ", seed " + std::to_string(seed) + ", " +
         std::to_string(multiprocessors) + " multiprocessors" +
         (is_capturing ? ", a graph is captured" : "");
}

std::vector<std::string> function_names(const std::vector<const void*>& addresses) {
  const std::vector<std::string> lines = look_up(addresses);
  std::vector<std::string> names;
  for (std::size_t i = 0; i + 1 < lines.size(); i += 2) {
    names.push_back(without_namespaces(lines[i]));
  }
  return names;
}

std::string source_line(const void* code) {
  const std::vector<std::string> lines = look_up({code});
  return lines.size() > 1 ? lines[1] : "?";
}

void fault(const std::string& what, const std::string& source) {
  std::fprintf(stderr, "emulation: %s\n", what.c_str());
  if (!source.empty()) std::fprintf(stderr, "  source    %s\n", source.c_str());
  print_place();
  std::abort();
}

void fault(const std::string& what, const Site& site) {
  if (site.file == nullptr) fault(what);
  fault(what, site.operation + (" at " + (site.file + (":" + std::to_string(site.line)))));
}

}  // namespace emulation
