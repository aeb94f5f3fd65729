# simple_layernorm/_build_info.py: what the Python package knows of its own build.

# The hash of all code in some folders, by which a benchmark's figure names the kernels it timed.
# Comments and white space do not count: they change no figure.
function(hash_sources variable)
  list(TRANSFORM ARGN APPEND /* OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${patterns})
  list(SORT files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(text "")
  foreach(file IN LISTS files)
    file(READ ${file} content)
    string(REGEX REPLACE "//[^\n]*|[ \t\r\n]+" "" content "${content}")
    string(APPEND text "${content}")
  endforeach()
  string(SHA256 hash "${text}")
  set(${variable} ${hash} PARENT_SCOPE)
endfunction()
hash_sources(kernel_sources src/gpu src/math)
hash_sources(cpu_kernel_sources src/cpu src/math)

set(cxx_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(gpu_compiler "")
if(NOT SIMPLE_LAYERNORM_GPU_LANGUAGE STREQUAL "off")
  string(TOUPPER ${SIMPLE_LAYERNORM_GPU_LANGUAGE} language)
  set(gpu_compiler "${CMAKE_${language}_COMPILER_ID} ${CMAKE_${language}_COMPILER_VERSION}")
endif()
configure_file(cmake/_build_info.py.in _build_info.py @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/_build_info.py DESTINATION .)
