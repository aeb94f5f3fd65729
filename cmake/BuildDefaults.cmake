# What holds for every target of this build, and only for them: the variables are set in this
# folder's scope, so that a project that adds this one as a subdirectory keeps its own.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# The .hip files keep to C++17, which all compilers of both languages know.
foreach(language HIP CUDA)
  set(CMAKE_${language}_STANDARD 17)
  set(CMAKE_${language}_STANDARD_REQUIRED ON)
  set(CMAKE_${language}_EXTENSIONS OFF)
endforeach()
foreach(language CXX HIP CUDA)
  set(CMAKE_${language}_VISIBILITY_PRESET hidden)
endforeach()
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Libraries of a wheel find each other and torch by their place inside site-packages. Elsewhere torch
# and the GPU runtime lie where they were linked.
if(SKBUILD)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(CMAKE_INSTALL_DATADIR share)
  set(CMAKE_INSTALL_RPATH "$ORIGIN:$ORIGIN/../../torch/lib")
else()
  include(GNUInstallDirs)
  set(CMAKE_INSTALL_RPATH "$ORIGIN")
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# A version in the library's name, with a link under the plain one; wheels cannot hold links.
function(simple_layernorm_versioned target)
  if(NOT SKBUILD)
    set_target_properties(${target} PROPERTIES
      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endif()
endfunction()

# Contracting a * b + c into one rounding is the compiler's choice, and would make a row's result
# depend on the loop it was computed in. The kernels ask for fma where they want it. Messages of
# errors name a file by its place in the project, wherever that was built.
set(relative_paths -ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=)
add_library(simple_layernorm_options INTERFACE)
target_compile_options(simple_layernorm_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX,HIP>:-Wall -Wextra -ffp-contract=off ${relative_paths}>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off,${relative_paths}>)
# A compiler may bring its C++ library as an archive. Exported from here, half of its streams would
# be bound to the shared one that torch brings, and printing a number would crash.
target_link_options(simple_layernorm_options INTERFACE LINKER:--exclude-libs,ALL)
target_include_directories(simple_layernorm_options INTERFACE
  ${CMAKE_CURRENT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/src/include)
