# The tests of the CPU backend: the public functions at every level, the levels beside each other, and
# the names that their objects give the linker.
add_library(cpu_level_main OBJECT cpu_level_main.cpp)
target_link_libraries(cpu_level_main PRIVATE simple_layernorm_options GTest::gtest)

set(cpu_levels baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  list(APPEND cpu_levels avx2 avx512)
endif()
foreach(name cpu_forward_test cpu_backward_test)
  add_executable(${name} ${name}.cpp $<TARGET_OBJECTS:cpu_level_main>)
  target_link_libraries(${name} PRIVATE
    simple_layernorm::kernels simple_layernorm_options GTest::gtest Threads::Threads)
  foreach(level ${cpu_levels})
    add_test(NAME ${name}.${level} COMMAND ${name})
    set_tests_properties(${name}.${level} PROPERTIES
      ENVIRONMENT SIMPLE_LAYERNORM_CPU_LEVEL=${level} SKIP_REGULAR_EXPRESSION "this machine has no")
  endforeach()
endforeach()

add_executable(cpu_levels_test cpu_levels_test.cpp)
target_link_libraries(cpu_levels_test PRIVATE
  simple_layernorm_cpu simple_layernorm_options GTest::gtest_main Threads::Threads)
gtest_discover_tests(cpu_levels_test)

add_test(NAME cpu_symbols_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cpu_symbols_test.sh
  "$<FILTER:$<TARGET_OBJECTS:simple_layernorm_cpu>,INCLUDE,kernels_>" COMMAND_EXPAND_LISTS)
