# The library as its C++ users get it: ACQUIRE is find_package, add_subdirectory or FetchContent, the
# latter two from LIBRARY_SOURCE. COMPONENTS names what is wanted beside the kernels.
set(ACQUIRE find_package CACHE STRING "find_package, add_subdirectory or FetchContent")
if("torch" IN_LIST COMPONENTS)
  set(SIMPLE_LAYERNORM_TORCH ON)
endif()
if(ACQUIRE STREQUAL "find_package")
  find_package(simple_layernorm 0.1 REQUIRED COMPONENTS ${COMPONENTS})
elseif(ACQUIRE STREQUAL "add_subdirectory")
  add_subdirectory(${LIBRARY_SOURCE} _deps/simple_layernorm-build)  # where FetchContent builds
else()
  include(FetchContent)
  FetchContent_Declare(simple_layernorm SOURCE_DIR ${LIBRARY_SOURCE})
  FetchContent_MakeAvailable(simple_layernorm)
endif()
