include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS convoy EXPORT convoy-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET convoy_app)
  install(TARGETS convoy_app RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY convoy DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT convoy-targets NAMESPACE convoy:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)
configure_package_config_file(cmake/convoy-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/convoy-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/convoy-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/convoy-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/convoy-config-version.cmake cmake/Finddnnl.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)
