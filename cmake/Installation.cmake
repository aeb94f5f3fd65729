# What is installed, in a wheel and by cmake --install alike: lib, include and the CMake package.
# A wheel puts all of it into the folder of the Python package, beside the compiled module.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_DATADIR}/cmake/simple_layernorm)
set(libraries simple_layernorm_kernels)
if(SIMPLE_LAYERNORM_TORCH)
  list(APPEND libraries simple_layernorm_torch)
endif()

install(TARGETS ${libraries} EXPORT simple_layernorm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET simple_layernorm_gpu)
  install(TARGETS simple_layernorm_gpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY src/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT simple_layernorm NAMESPACE simple_layernorm:: DESTINATION ${package_folder}
        FILE simple_layernormTargets.cmake)
configure_package_config_file(cmake/simple_layernormConfig.cmake.in simple_layernormConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(simple_layernormConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/simple_layernormConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/simple_layernormConfigVersion.cmake
              cmake/PythonTorch.cmake
        DESTINATION ${package_folder})

if(SKBUILD)
  install(TARGETS simple_layernorm_python LIBRARY DESTINATION .)
  include(BuildInfo)
endif()
