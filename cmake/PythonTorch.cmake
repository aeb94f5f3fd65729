# The installed torch as a target, simple_layernorm::libtorch, for this build and for users of the
# installed package. Not by find_package(Torch): on a CUDA torch that demands the whole CUDA toolkit
# and rewrites CUDA's flags, on a ROCm torch it requires rocBLAS, MIOpen and more. We need none.
include_guard(GLOBAL)

set(SIMPLE_LAYERNORM_OLDEST_TORCH 2.11)

# Output of a Python program, empty if it fails. Neither its working folder nor, with ISOLATED, the
# environment is searched for modules: pip's build isolation hides the installed packages by
# PYTHONPATH, and a folder named torch lies in many a source tree.
function(simple_layernorm_ask_python output program)
  cmake_parse_arguments(PARSE_ARGV 2 ask ISOLATED "" "")
  set(flags -c)
  if(ask_ISOLATED)
    set(flags -E -c)
  endif()
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${flags} "import sys; sys.path[:1] = sys.path[:1] if sys.path[0] else []\n${program}"
    WORKING_DIRECTORY / OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE ignored RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(answer "")
  endif()
  set(${output} "${answer}" PARENT_SCOPE)
endfunction()

# Folder of the torch package that Python_EXECUTABLE imports. torch itself is not imported: it takes
# seconds, and fails where its GPU libraries are missing.
function(simple_layernorm_torch_of_python output)
  set(program "from importlib.util import find_spec\nprint(find_spec('torch').submodule_search_locations[0])")
  simple_layernorm_ask_python(folder "${program}")
  if(NOT folder)
    simple_layernorm_ask_python(folder "${program}" ISOLATED)
  endif()
  set(${output} "${folder}" PARENT_SCOPE)
endfunction()

# simple_layernorm_find_torch([PYTHON_ONLY] [CANDIDATES folder...]): the first torch among Torch_DIR,
# Torch_ROOT, CMAKE_PREFIX_PATH (an unpacked libtorch needs no Python), CANDIDATES, and the Python's.
function(simple_layernorm_find_torch)
  cmake_parse_arguments(PARSE_ARGV 0 find PYTHON_ONLY "" CANDIDATES)
  set(folder "")
  if(NOT find_PYTHON_ONLY)
    foreach(candidate IN LISTS Torch_DIR Torch_ROOT CMAKE_PREFIX_PATH find_CANDIDATES)
      foreach(below "" /../../.. /../..)  # of TorchConfig.cmake, of torch.utils.cmake_prefix_path
        if(NOT folder AND candidate AND EXISTS "${candidate}${below}/include/torch/csrc/api/include/torch/version.h")
          get_filename_component(folder "${candidate}${below}" ABSOLUTE)
        endif()
      endforeach()
    endforeach()
  endif()
  if(NOT folder)
    if(NOT Python_EXECUTABLE)
      find_package(Python 3.10 COMPONENTS Interpreter)
    endif()
    simple_layernorm_torch_of_python(folder)
  endif()
  if(NOT folder)
    message(FATAL_ERROR
      "simple_layernorm: no torch found. Asked: ${Python_EXECUTABLE}. Install torch there, or say where "
      "it is: -DPython_EXECUTABLE=<python that has torch>, -DTorch_DIR=<torch>/share/cmake/Torch or "
      "-DCMAKE_PREFIX_PATH=<libtorch>. With build isolation that hides torch: pip install "
      "--no-build-isolation, uv pip install --no-build-isolation, python -m build --no-isolation.")
  endif()
  file(REAL_PATH "${folder}" folder)
  simple_layernorm_import_torch("${folder}")
  foreach(fact ROOT VERSION FLAVOUR HIP)
    set(SIMPLE_LAYERNORM_TORCH_${fact} "${torch_${fact}}" PARENT_SCOPE)
  endforeach()
endfunction()

# Defines the target, and torch_ROOT, _VERSION (2.13.0+cpu), _FLAVOUR (cpu, cuda or rocm) and _HIP
# (the version of HIP that a ROCm torch was built with).
function(simple_layernorm_import_torch folder)
  set(torch_ROOT "${folder}")
  set(torch_VERSION "")
  set(torch_HIP "")
  if(EXISTS "${folder}/version.py")
    file(READ "${folder}/version.py" text)
    if(text MATCHES "__version__ = '([^']+)'")
      set(torch_VERSION "${CMAKE_MATCH_1}")
    endif()
    if(text MATCHES "\nhip[^\n=]*= '([^']+)'")
      set(torch_HIP "${CMAKE_MATCH_1}")
    endif()
  elseif(EXISTS "${folder}/build-version")
    file(STRINGS "${folder}/build-version" torch_VERSION LIMIT_COUNT 1)
  endif()
  if(torch_VERSION VERSION_LESS SIMPLE_LAYERNORM_OLDEST_TORCH)
    message(FATAL_ERROR "simple_layernorm: expected torch ${SIMPLE_LAYERNORM_OLDEST_TORCH} or later, "
                        "but got \"${torch_VERSION}\" in ${folder}")
  endif()

  set(torch_FLAVOUR cpu)
  if(EXISTS "${folder}/lib/libtorch_hip.so")
    set(torch_FLAVOUR rocm)
  elseif(EXISTS "${folder}/lib/libtorch_cuda.so")
    set(torch_FLAVOUR cuda)
  endif()

  if(NOT TARGET simple_layernorm::libtorch)
    add_library(simple_layernorm::libtorch INTERFACE IMPORTED GLOBAL)
    # An imported target's headers are system headers: their warnings are not ours.
    target_include_directories(simple_layernorm::libtorch INTERFACE
      "${folder}/include" "${folder}/include/torch/csrc/api/include")
    foreach(library torch torch_cpu c10)
      target_link_libraries(simple_layernorm::libtorch INTERFACE "${folder}/lib/lib${library}.so")
    endforeach()
    target_compile_features(simple_layernorm::libtorch INTERFACE cxx_std_20)
  endif()
  return(PROPAGATE torch_ROOT torch_VERSION torch_FLAVOUR torch_HIP)
endfunction()
