# Rules of `cmake --install`: headers, libhawser.a or libhawser.so, the CMake package, hawser.pc, a .pc file of each
# component, and the programs hawser, hawser-bench, hawser-block and hawser-kv if they are built.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Users of a static library link the libraries that it was built with. Each such library is known to pkg-config by the
# name that follows PkgConfig::, so that both hawserConfig.cmake and hawser.pc can find it on the user's machine.
get_property(libraries GLOBAL PROPERTY HAWSER_LAYER_LIBRARIES)
list(REMOVE_DUPLICATES libraries)
foreach(library IN LISTS libraries)
  if(NOT library MATCHES "^PkgConfig::(.+)$")
    message(FATAL_ERROR "${library} can't be packaged: find it with pkg_check_modules(NAME REQUIRED IMPORTED_TARGET NAME)")
  endif()
  list(APPEND HAWSER_PKG_CONFIG_MODULES ${CMAKE_MATCH_1})
endforeach()
if(HAWSER_SHARED)
  set(HAWSER_PKG_CONFIG_MODULES "")  # The shared library names the libraries that it needs.
endif()
string(REPLACE ";" " " HAWSER_PKG_CONFIG_MODULES "${HAWSER_PKG_CONFIG_MODULES}")

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hawser)
# A relative path, so that an installed tree can be moved.
file(RELATIVE_PATH HAWSER_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HAWSER_PREFIX_FROM_PC ${HAWSER_PREFIX_FROM_PC})

# The components, each with an export file of its own that hawserConfig.cmake includes if a user asks for it.
get_property(components GLOBAL PROPERTY HAWSER_COMPONENTS)
foreach(component IN LISTS components)
  get_property(targets GLOBAL PROPERTY HAWSER_COMPONENT_TARGETS_${component})
  get_property(libraries GLOBAL PROPERTY HAWSER_COMPONENT_LIBRARIES_${component})
  get_property(links GLOBAL PROPERTY HAWSER_COMPONENT_LINKS_${component})
  get_property(scripts GLOBAL PROPERTY HAWSER_COMPONENT_SCRIPTS_${component})
  list(TRANSFORM libraries REPLACE "^PkgConfig::" "")
  string(REPLACE ";" " " libraries "${libraries}")
  string(APPEND HAWSER_COMPONENT_MODULES "set(hawser_${component}_modules \"${libraries}\")\n")
  string(APPEND HAWSER_COMPONENT_MODULES "set(hawser_${component}_links ${links})\n")
  list(TRANSFORM links PREPEND hawser-)
  list(APPEND links hawser)
  list(TRANSFORM links APPEND " = ${PROJECT_VERSION}")
  list(APPEND links ${libraries})
  list(JOIN links ", " HAWSER_COMPONENT_REQUIRES)
  set(HAWSER_COMPONENT ${component})
  configure_file(cmake/hawser-component.pc.in hawser-${component}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/hawser-${component}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(TARGETS ${targets} EXPORT hawser_${component} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(EXPORT hawser_${component} FILE hawser_${component}Targets.cmake NAMESPACE hawser::
          DESTINATION ${package_folder})
  foreach(script IN LISTS scripts)
    install(FILES ${script} DESTINATION ${package_folder})
    cmake_path(GET script FILENAME file)
    string(APPEND HAWSER_COMPONENT_MODULES "set(hawser_${component}_scripts ${file})\n")
  endforeach()
endforeach()

configure_file(cmake/hawser.pc.in hawser.pc @ONLY)
configure_package_config_file(cmake/hawserConfig.cmake.in hawserConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(hawserConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS hawser EXPORT hawser ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT hawser FILE hawserTargets.cmake NAMESPACE hawser:: DESTINATION ${package_folder})
install(FILES ${PROJECT_BINARY_DIR}/hawserConfig.cmake ${PROJECT_BINARY_DIR}/hawserConfigVersion.cmake
        DESTINATION ${package_folder})
install(FILES ${PROJECT_BINARY_DIR}/hawser.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY include/hawser DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
include(cmake/sbom.cmake)
foreach(program hawser-bench hawser-block hawser-cli hawser-kv)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
    if(NOT CMAKE_CROSSCOMPILING)
      # Its manual pages and completions. A program that was not built is not installed either.
      install(CODE "if(EXISTS \"$<TARGET_FILE:${program}>\")
                      execute_process(COMMAND \"$<TARGET_FILE:${program}>\" help --install
                                              \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" COMMAND_ERROR_IS_FATAL ANY)
                    endif()")
    endif()
  endif()
endforeach()

# The archive of the target "package", and of cpack. A project that adds Hawser makes its own packages.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_VENDOR "The Hawser developers")
  set(CPACK_PACKAGE_FILE_NAME ${PROJECT_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_VERBATIM_VARIABLES ON)
  include(CPack)
endif()
