// Which devices the code compiled for an architecture runs on. Plain host code that knows no GPU
// header, so that it is tested without a GPU.
#pragma once

#include <charconv>
#include <string_view>

namespace simple_layernorm::gpu {

/// NVIDIA's "sm_90a" or "compute_120" in parts; `kind` is empty for AMD's "gfx90a".
struct CudaArchitecture {
  std::string_view kind;  ///< "sm": machine code; "compute": code that the driver translates
  int capability = 0;     ///< 10 * major + minor
  bool specific = false;  ///< "a": with instructions that no other capability has
};

inline CudaArchitecture parse_cuda_architecture(std::string_view name) {
  const auto underscore = name.find('_');
  if (underscore == std::string_view::npos) return {};
  CudaArchitecture parsed{name.substr(0, underscore)};
  const char* digits = name.data() + underscore + 1;
  std::from_chars(digits, name.data() + name.size(), parsed.capability);
  parsed.specific = name.back() == 'a';
  return parsed;
}

/// Whether code compiled for `code` runs on a device of architecture `device`. Features that follow
/// an AMD name after a colon, as in "gfx90a:xnack-", are left to the runtime to check.
inline bool runs_on(std::string_view code, std::string_view device) {
  const CudaArchitecture of_code = parse_cuda_architecture(code);
  const CudaArchitecture of_device = parse_cuda_architecture(device);
  if (of_code.kind.empty()) return code.substr(0, code.find(':')) == device;
  if (of_code.specific) return of_code.capability == of_device.capability;
  if (of_code.kind == "compute") return of_code.capability <= of_device.capability;
  return of_code.capability / 10 == of_device.capability / 10 &&
         of_code.capability <= of_device.capability;
}

/// The same for a semicolon-separated list of architectures, of which one must do.
inline bool any_runs_on(std::string_view list, std::string_view device) {
  for (;;) {
    const auto end = list.find(';');
    if (runs_on(list.substr(0, end), device)) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

}  // namespace simple_layernorm::gpu
