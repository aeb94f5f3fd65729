# CMake's HIP language, on a ROCm installation and on Debian's packages, which scatter ROCm over /usr.
# Nothing is asked of the user, and ROCM_PATH is read, never set.
include(PythonTorch)

set(SIMPLE_LAYERNORM_DEBIAN_PREFIX /usr CACHE PATH "Where Debian's packages are unpacked")
mark_as_advanced(SIMPLE_LAYERNORM_DEBIAN_PREFIX)

# Facts about the ROCm at hand, or in `missing` a clause that says what is not there. A macro, because
# enable_language(HIP) reads its variables in the caller's scope.
macro(simple_layernorm_find_hip missing)
  set(${missing} "")
  set(SIMPLE_LAYERNORM_HIP_ROOT "")
  # Else CMake asks hipconfig, which says nvidia wherever nvcc is on PATH.
  set(CMAKE_HIP_PLATFORM amd)
  simple_layernorm_rocm_root(SIMPLE_LAYERNORM_HIP_ROOT)
  if(SIMPLE_LAYERNORM_HIP_ROOT)
    set(CMAKE_HIP_COMPILER_ROCM_ROOT ${SIMPLE_LAYERNORM_HIP_ROOT})
    find_program(CMAKE_HIP_COMPILER clang++ NO_DEFAULT_PATH
      PATHS ${SIMPLE_LAYERNORM_HIP_ROOT}/lib/llvm/bin ${SIMPLE_LAYERNORM_HIP_ROOT}/llvm/bin)
    if(NOT CMAKE_HIP_COMPILER)
      set(${missing} "there is no clang++ in ${SIMPLE_LAYERNORM_HIP_ROOT}/lib/llvm/bin; give it by -DCMAKE_HIP_COMPILER")
    endif()
  else()
    simple_layernorm_debian_hip()
    if(NOT CMAKE_HIP_COMPILER)
      set(${missing} "no HIP compiler was found (ROCm in /opt/rocm, in ROCM_PATH or as a Python package, or \
Debian's hipcc and libamdhip64-dev; other places by -DCMAKE_HIP_COMPILER_ROCM_ROOT, -DCMAKE_HIP_COMPILER)")
    endif()
  endif()
  set(SIMPLE_LAYERNORM_HIP_VERSION "")
  if(EXISTS ${SIMPLE_LAYERNORM_HIP_ROOT}/include/hip/hip_version.h)
    file(READ ${SIMPLE_LAYERNORM_HIP_ROOT}/include/hip/hip_version.h text)
    if(text MATCHES "HIP_VERSION_MAJOR +([0-9]+).*HIP_VERSION_MINOR +([0-9]+)")
      set(SIMPLE_LAYERNORM_HIP_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
    endif()
  endif()
endmacro()

# A folder that holds a whole ROCm: the user's, /opt/rocm, or the one that pip installed.
function(simple_layernorm_rocm_root output)
  set(candidates ${CMAKE_HIP_COMPILER_ROCM_ROOT} $ENV{ROCM_PATH} $ENV{ROCM_HOME} /opt/rocm)
  if(Python_EXECUTABLE)
    simple_layernorm_ask_python(wheel
      "from importlib.util import find_spec\nprint(find_spec('_rocm_sdk_devel').submodule_search_locations[0])")
    list(APPEND candidates ${wheel})
  endif()
  set(${output} "" PARENT_SCOPE)
  foreach(root IN LISTS candidates)
    if(EXISTS ${root}/lib/cmake/hip-lang/hip-lang-config.cmake)
      set(${output} ${root} PARENT_SCOPE)
      break()
    endif()
  endforeach()
endfunction()

# Debian: hip-lang lies below lib/<multiarch>, where CMake before 3.27 does not look, and clang finds
# neither HIP nor its device libraries unless told.
macro(simple_layernorm_debian_hip)
  file(GLOB hip_lang LIST_DIRECTORIES true ${SIMPLE_LAYERNORM_DEBIAN_PREFIX}/lib/*/cmake/hip-lang)
  # The device libraries are a package of their own on Debian 12, and clang's on Debian 13.
  file(GLOB bitcode LIST_DIRECTORIES true
    ${SIMPLE_LAYERNORM_DEBIAN_PREFIX}/lib/*/amdgcn/bitcode
    ${SIMPLE_LAYERNORM_DEBIAN_PREFIX}/lib/llvm-*/lib/clang/*/amdgcn/bitcode)
  if(hip_lang AND bitcode)
    list(GET hip_lang 0 hip_lang)
    list(GET bitcode 0 bitcode)
    if(NOT CMAKE_HIP_COMPILER)
      # CMake refuses hipcc. The device libraries fit the clang that hipcc's package depends on.
      execute_process(COMMAND dpkg-query --show --showformat=\${Depends} hipcc
                      OUTPUT_VARIABLE depends ERROR_QUIET)
      if(depends MATCHES "clang-([0-9]+)")
        find_program(CMAKE_HIP_COMPILER clang++-${CMAKE_MATCH_1})
      endif()
    endif()
    if(CMAKE_HIP_COMPILER)
      set(SIMPLE_LAYERNORM_HIP_ROOT ${SIMPLE_LAYERNORM_DEBIAN_PREFIX})
      string(APPEND CMAKE_HIP_FLAGS " --rocm-path=${SIMPLE_LAYERNORM_DEBIAN_PREFIX} --rocm-device-lib-path=${bitcode}")
      set(shim ${CMAKE_CURRENT_BINARY_DIR}/rocm-root)
      file(MAKE_DIRECTORY ${shim}/lib/cmake)
      file(CREATE_LINK ${hip_lang} ${shim}/lib/cmake/hip-lang SYMBOLIC)
      set(CMAKE_HIP_COMPILER_ROCM_ROOT ${shim})
      # hip-lang looks for its dependencies in CMake's compiler checks too, which see no variable.
      cmake_path(GET hip_lang PARENT_PATH packages)
      set(ENV{amd_comgr_DIR} ${packages}/amd_comgr)
    endif()
  endif()
endmacro()

# Another major version of HIP than torch's would load a second runtime into the process.
function(simple_layernorm_check_hip_against_torch)
  if(NOT SIMPLE_LAYERNORM_TORCH_HIP OR NOT SIMPLE_LAYERNORM_HIP_VERSION)
    return()
  endif()
  string(REGEX MATCH "^[0-9]+" of_torch "${SIMPLE_LAYERNORM_TORCH_HIP}")
  string(REGEX MATCH "^[0-9]+" here "${SIMPLE_LAYERNORM_HIP_VERSION}")
  if(NOT of_torch EQUAL here)
    message(FATAL_ERROR
      "simple_layernorm: expected HIP ${of_torch}, which torch ${SIMPLE_LAYERNORM_TORCH_VERSION} was built with, "
      "but got HIP ${SIMPLE_LAYERNORM_HIP_VERSION} in ${SIMPLE_LAYERNORM_HIP_ROOT}. Set ROCM_PATH to a ROCm of "
      "that version, or build without GPU kernels: pip install . --config-settings cmake.define.SIMPLE_LAYERNORM_GPU=OFF")
  endif()
endfunction()

# CMAKE_HIP_ARCHITECTURES: the user's, PYTORCH_ROCM_ARCH, those of a ROCm torch, those of the GPUs
# that are seen, or what the compiler at hand has device libraries for.
macro(simple_layernorm_hip_architectures)
  if(NOT CMAKE_HIP_ARCHITECTURES)
    string(REGEX REPLACE "[ ,]+" ";" CMAKE_HIP_ARCHITECTURES "$ENV{PYTORCH_ROCM_ARCH}")
  endif()
  if(NOT CMAKE_HIP_ARCHITECTURES AND SIMPLE_LAYERNORM_TORCH_FLAVOUR STREQUAL "rocm" AND Python_EXECUTABLE)
    # Only the running torch knows.
    set(program "import torch\nprint(torch._C._cuda_getArchFlags())")
    simple_layernorm_ask_python(CMAKE_HIP_ARCHITECTURES "${program}")
    if(NOT CMAKE_HIP_ARCHITECTURES)
      simple_layernorm_ask_python(CMAKE_HIP_ARCHITECTURES "${program}" ISOLATED)
    endif()
    string(REPLACE " " ";" CMAKE_HIP_ARCHITECTURES "${CMAKE_HIP_ARCHITECTURES}")
  endif()
  simple_layernorm_gpu_is_seen(seen rocm)
  if(NOT CMAKE_HIP_ARCHITECTURES AND seen)
    execute_process(COMMAND ${SIMPLE_LAYERNORM_HIP_ROOT}/bin/rocm_agent_enumerator -t GPU
                    OUTPUT_VARIABLE agents ERROR_QUIET)
    string(REGEX MATCHALL "gfx[0-9a-f]+" CMAKE_HIP_ARCHITECTURES "${agents}")
    list(REMOVE_ITEM CMAKE_HIP_ARCHITECTURES gfx000)
    list(REMOVE_DUPLICATES CMAKE_HIP_ARCHITECTURES)
  endif()
  if(NOT CMAKE_HIP_ARCHITECTURES)
    set(CMAKE_HIP_ARCHITECTURES gfx90a gfx1030)
    if(SIMPLE_LAYERNORM_HIP_VERSION VERSION_GREATER_EQUAL 6)
      list(APPEND CMAKE_HIP_ARCHITECTURES gfx942 gfx1100)
    endif()
  endif()
  set(SIMPLE_LAYERNORM_GPU_ARCHITECTURES ${CMAKE_HIP_ARCHITECTURES})
endmacro()
