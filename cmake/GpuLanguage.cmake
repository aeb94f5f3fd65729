# Which language the .hip files are compiled in: SIMPLE_LAYERNORM_GPU, or with AUTO what the torch at
# hand was built for, without torch what compiler there is. Afterwards SIMPLE_LAYERNORM_GPU_LANGUAGE
# is hip, cuda or off, the language is enabled, and SIMPLE_LAYERNORM_GPU_ARCHITECTURES names the
# architectures; SIMPLE_LAYERNORM_GPU_REASON says why, when AUTO found off.

include(HipLanguage)
include(CudaLanguage)

# Files of which one exists where a driver has found a GPU.
set(SIMPLE_LAYERNORM_ROCM_DEVICE_FILES /dev/kfd CACHE STRING "Files that show an AMD GPU")
set(SIMPLE_LAYERNORM_CUDA_DEVICE_FILES "/dev/nvidia0;/dev/nvidiactl;/proc/driver/nvidia/version"
    CACHE STRING "Files that show an NVIDIA GPU")
mark_as_advanced(SIMPLE_LAYERNORM_ROCM_DEVICE_FILES SIMPLE_LAYERNORM_CUDA_DEVICE_FILES)

function(simple_layernorm_gpu_is_seen output flavour)
  string(TOUPPER "${flavour}" flavour)
  set(${output} FALSE PARENT_SCOPE)
  foreach(file IN LISTS SIMPLE_LAYERNORM_${flavour}_DEVICE_FILES)
    if(EXISTS "${file}")
      set(${output} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

set(SIMPLE_LAYERNORM_GPU_ARCHITECTURES "")
set(SIMPLE_LAYERNORM_GPU_REASON "")
string(TOUPPER "${SIMPLE_LAYERNORM_GPU}" wanted)

if(wanted STREQUAL "HIP")
  simple_layernorm_find_hip(missing)
elseif(wanted STREQUAL "CUDA")
  simple_layernorm_find_cuda(missing)
elseif(wanted STREQUAL "OFF")
  set(missing "")
  set(SIMPLE_LAYERNORM_GPU_REASON "built with SIMPLE_LAYERNORM_GPU=OFF")
elseif(NOT wanted STREQUAL "AUTO")
  message(FATAL_ERROR "simple_layernorm: expected SIMPLE_LAYERNORM_GPU to be AUTO, HIP, CUDA or OFF, "
                      "but got ${SIMPLE_LAYERNORM_GPU}")
endif()
if(NOT wanted STREQUAL "AUTO" AND missing)
  message(FATAL_ERROR "simple_layernorm: SIMPLE_LAYERNORM_GPU is ${wanted}, but ${missing}")
endif()

if(wanted STREQUAL "AUTO" AND SIMPLE_LAYERNORM_TORCH)
  if(SIMPLE_LAYERNORM_TORCH_FLAVOUR STREQUAL "rocm")
    set(wanted HIP)
    simple_layernorm_find_hip(missing)
  elseif(SIMPLE_LAYERNORM_TORCH_FLAVOUR STREQUAL "cuda")
    set(wanted CUDA)
    simple_layernorm_find_cuda(missing)
  else()
    set(wanted OFF)
    set(missing "")
    set(SIMPLE_LAYERNORM_GPU_REASON "torch ${SIMPLE_LAYERNORM_TORCH_VERSION} is a build for the CPU")
  endif()
  # PyPI's torch is a CUDA build on every machine: where there is no GPU, that is no reason to fail.
  simple_layernorm_gpu_is_seen(seen "${SIMPLE_LAYERNORM_TORCH_FLAVOUR}")
  if(missing AND seen)
    message(FATAL_ERROR
      "simple_layernorm: torch ${SIMPLE_LAYERNORM_TORCH_VERSION} is a build for GPUs and this machine has one, "
      "but ${missing}. Install that, or build without GPU kernels: "
      "pip install . --config-settings cmake.define.SIMPLE_LAYERNORM_GPU=OFF")
  elseif(missing)
    set(wanted OFF)
    set(SIMPLE_LAYERNORM_GPU_REASON "built on a machine where no GPU is seen and ${missing}")
  endif()
elseif(wanted STREQUAL "AUTO")
  set(wanted HIP)
  simple_layernorm_find_hip(missing)
  if(missing)
    set(SIMPLE_LAYERNORM_GPU_REASON "${missing}, and ")
    set(wanted CUDA)
    simple_layernorm_find_cuda(missing)
  endif()
  if(missing)
    set(wanted OFF)
    string(APPEND SIMPLE_LAYERNORM_GPU_REASON "${missing}")
  endif()
endif()

string(TOLOWER "${wanted}" SIMPLE_LAYERNORM_GPU_LANGUAGE)
if(wanted STREQUAL "HIP")
  simple_layernorm_check_hip_against_torch()
  simple_layernorm_hip_architectures()
  enable_language(HIP)
elseif(wanted STREQUAL "CUDA")
  simple_layernorm_cuda_architectures()
  enable_language(CUDA)
endif()
