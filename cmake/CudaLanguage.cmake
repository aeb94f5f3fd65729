# CMake's CUDA language, in which the same .hip files are compiled for NVIDIA GPUs.

# In `missing` a clause that says what is not there.
function(simple_layernorm_find_cuda missing)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  set(${missing} "" PARENT_SCOPE)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
    set(${missing} "no CUDA compiler was found (nvcc on PATH, in CUDA_HOME or in /usr/local/cuda; other \
places by -DCMAKE_CUDA_COMPILER)" PARENT_SCOPE)
    return()
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # The check compiles for a default of its own otherwise, which nvcc 13 no longer knows.
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${missing} "its CUDA compiler does not work (CMakeFiles in the build folder has the log)" PARENT_SCOPE)
  endif()
endfunction()

# CMAKE_CUDA_ARCHITECTURES: the user's, TORCH_CUDA_ARCH_LIST, that of the GPU that is seen, those of a
# CUDA torch, or a list. From it SIMPLE_LAYERNORM_GPU_ARCHITECTURES: sm_90 is machine code for 9.x
# devices, compute_90 is code that the driver translates for any later one.
macro(simple_layernorm_cuda_architectures)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    simple_layernorm_torch_cuda_arch_list(CMAKE_CUDA_ARCHITECTURES)
  endif()
  simple_layernorm_gpu_is_seen(seen cuda)
  if(seen AND (NOT CMAKE_CUDA_ARCHITECTURES OR CMAKE_CUDA_ARCHITECTURES STREQUAL "native"))
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capabilities ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    string(REPLACE "." "" CMAKE_CUDA_ARCHITECTURES "${capabilities}")
    list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
    list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND -real)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES AND SIMPLE_LAYERNORM_TORCH_FLAVOUR STREQUAL "cuda" AND Python_EXECUTABLE)
    set(program "import torch\nprint(torch._C._cuda_getArchFlags())")
    simple_layernorm_ask_python(flags "${program}")
    if(NOT flags)
      simple_layernorm_ask_python(flags "${program}" ISOLATED)
    endif()
    string(REGEX MATCHALL "(sm|compute)_[0-9a-z]+" flags "${flags}")
    list(TRANSFORM flags REPLACE "^sm_(.*)" "\\1-real")
    list(TRANSFORM flags REPLACE "^compute_(.*)" "\\1-virtual" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Turing, Ampere with Ada, Hopper, and by the last one's portable code all later ones.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
  endif()
  set(SIMPLE_LAYERNORM_GPU_ARCHITECTURES "")
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(NOT architecture MATCHES "^([0-9]+[a-z]?)(-real|-virtual)?$")
      message(FATAL_ERROR "simple_layernorm: expected CMAKE_CUDA_ARCHITECTURES to list numbers such as 90, "
                          "90-real or 90-virtual, but got ${CMAKE_CUDA_ARCHITECTURES}")
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-virtual")
      list(APPEND SIMPLE_LAYERNORM_GPU_ARCHITECTURES sm_${CMAKE_MATCH_1})
    endif()
    if(NOT CMAKE_MATCH_2 STREQUAL "-real")
      list(APPEND SIMPLE_LAYERNORM_GPU_ARCHITECTURES compute_${CMAKE_MATCH_1})
    endif()
  endforeach()
endmacro()

# torch's spelling, "8.0;9.0+PTX", as CMake's. Names of GPU families are left to torch.
function(simple_layernorm_torch_cuda_arch_list output)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+[a-z]?(\\+PTX)?" list "$ENV{TORCH_CUDA_ARCH_LIST}")
  list(TRANSFORM list REPLACE "\\." "")
  list(TRANSFORM list REPLACE "^([0-9]+[a-z]?)$" "\\1-real")
  list(TRANSFORM list REPLACE "\\+PTX" "")
  set(${output} "${list}" PARENT_SCOPE)
endfunction()
