# cmake -DBUILD=<build folder> -DSOURCE=<source folder> -DWORK=<folder to use> -DCOMPILER=<c++> -DLIBDIR=<lib>
#       -DCOMPONENTS=<components that BUILD has, with commas> -DWITHIN_PROJECTS=<whether to compile the library again>
#       -P run.cmake
# Uses Hawser as other projects do: the static library installed from BUILD; with WITHIN_PROJECTS as a part of a
# project, through add_subdirectory and through FetchContent, and the shared library installed from the latter.
# Installed libraries are used through find_package and through pkg-config.
cmake_minimum_required(VERSION 3.25)
set(here ${CMAKE_CURRENT_LIST_DIR})
cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

# Sets `into` to the output of a command.
function(output_of into)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(${into} "${output}" PARENT_SCOPE)
endfunction()

# Builds the project in the folder `project` of this test as `name`.
function(configure name project)
  find_program(ccache ccache)
  if(ccache)
    list(APPEND ARGN -DCMAKE_CXX_COMPILER_LAUNCHER=${ccache})
  endif()
  run(${CMAKE_COMMAND} -S ${here}/${project} -B ${WORK}/${name} -G Ninja -DCMAKE_CXX_COMPILER=${COMPILER}
      -DCMAKE_BUILD_TYPE=Debug ${ARGN})
  run(${CMAKE_COMMAND} --build ${WORK}/${name} --parallel ${processors} -- --quiet)
endfunction()

# Uses the package that is installed in `prefix` and must have these components, which are separated by commas.
function(use_package name prefix components)
  configure(${name}/cmake . -DCMAKE_PREFIX_PATH=${prefix} -DCOMPONENTS=${components})
  run(${WORK}/${name}/cmake/consumer)
  run(${WORK}/${name}/cmake/components)
  if(EXISTS ${WORK}/${name}/cmake/service)
    run(${WORK}/${name}/cmake/service)
  endif()
  run(${WORK}/${name}/cmake/simulated)
  set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
  output_of(flags pkg-config --cflags --libs hawser-testing)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run(${COMPILER} -std=c++23 ${SOURCE}/examples/simulated.cpp -o ${WORK}/${name}/simulated ${flags})
  set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
  run(${WORK}/${name}/simulated)
  if(EXISTS ${prefix}/${LIBDIR}/libhawser.a)
    check_static_components(${name} ${components})
  endif()
endfunction()

# Links the program `components` by pkg-config, and each component with every object of its archive: the .pc file of a
# component names all that the component needs.
function(check_static_components name components)
  string(REPLACE "," ";" components "${components}")
  list(TRANSFORM components PREPEND hawser- OUTPUT_VARIABLE modules)
  output_of(flags pkg-config --libs ${modules})
  separate_arguments(flags UNIX_COMMAND "${flags}")
  find_program(mold mold)
  if(mold)
    list(APPEND linker -fuse-ld=mold)
  endif()
  run(${COMPILER} ${linker} ${WORK}/${name}/cmake/CMakeFiles/components.dir/components.cpp.o -o ${WORK}/${name}/components ${flags})
  run(${WORK}/${name}/components)
  foreach(component IN LISTS components)
    output_of(flags pkg-config --libs hawser-${component})
    separate_arguments(flags UNIX_COMMAND "${flags}")
    output_of(folder pkg-config --variable=libdir hawser-${component})
    run(${COMPILER} ${linker} -shared -Wl,-z,defs,--strip-debug,--whole-archive ${folder}/libhawser_${component}.a -Wl,--no-whole-archive
        -o ${WORK}/${name}/whole.so ${flags})
  endforeach()
endfunction()

# Builds Hawser within a project, in few compilations. The ways differ in linking only, so it is compiled once.
function(build_in_project way)
  configure(in_project in_tree -DWAY=${way} -DHAWSER=${SOURCE} -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_UNITY_BUILD=ON
            -DCMAKE_UNITY_BUILD_BATCH_SIZE=0 ${ARGN})
  run(${WORK}/in_project/consumer)
  # Hawser's options are not entries of the project's cache, except for those that are given here.
  file(STRINGS ${WORK}/in_project/CMakeCache.txt entries REGEX "^HAWSER_")
  foreach(entry IN LISTS entries)
    string(REGEX REPLACE "[:=].*" "" name ${entry})
    if(NOT "${ARGN}" MATCHES "-D${name}=")
      message(FATAL_ERROR "Hawser adds ${entry} to the cache of the project that adds it")
    endif()
  endforeach()
endfunction()

# The shared library has a versioned name, and exports its own symbols alone, each with the version.
function(check_shared_library prefix)
  file(GLOB library ${prefix}/${LIBDIR}/libhawser.so.*.*.*)
  output_of(dynamic objdump --private-headers ${library})
  if(NOT dynamic MATCHES "SONAME +libhawser\\.so\\.([0-9]+\\.[0-9]+)\n")
    message(FATAL_ERROR "${library} has no versioned SONAME:\n${dynamic}")
  endif()
  set(version HAWSER_${CMAKE_MATCH_1})
  output_of(symbols nm --dynamic --defined-only --with-symbol-versions ${library})
  string(REPLACE "\n" ";" symbols "${symbols}")
  list(FILTER symbols EXCLUDE REGEX " [TVWRBDu] _Z[A-Zvhn0-9_]*N[VKOR]*6hawser.*@@${version}$")
  list(FILTER symbols EXCLUDE REGEX " A ${version}(@@${version})?$")
  if(symbols)
    list(JOIN symbols "\n" lines)
    message(FATAL_ERROR "${library} exports symbols that are not its own, or have no version:\n${lines}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
# The archive that cpack makes has the installed files below a folder of its name, which can be moved.
cmake_path(GET CMAKE_COMMAND PARENT_PATH folder)
find_program(cpack cpack HINTS ${folder} REQUIRED)
run(${cpack} --config ${BUILD}/CPackConfig.cmake -G TZST -B ${WORK}/archive)
file(GLOB archive ${WORK}/archive/*.tar.zst)
file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${WORK}/archive)
file(REMOVE ${archive})
file(GLOB unpacked ${WORK}/archive/hawser-*)
file(RENAME ${unpacked} ${WORK}/static)
file(REMOVE_RECURSE ${WORK}/archive)
use_package(use_static ${WORK}/static ${COMPONENTS})
# The back end for NIXL is a project of its own. Its part that needs no NIXL is built and run.
configure(use_static/nixl ../../integrations/nixl -DCMAKE_PREFIX_PATH=${WORK}/static)
run(${WORK}/use_static/nixl/two_agents)

if(NOT WITHIN_PROJECTS)
  return()
endif()
# Without optional parts, which take time to compile.
set(library_alone -DHAWSER_UCX=OFF -DHAWSER_BRPC=OFF -DHAWSER_GRPC=OFF -DHAWSER_PROTOBUF=OFF)
build_in_project(add_subdirectory ${library_alone})
build_in_project(FetchContent ${library_alone} -DHAWSER_SHARED=ON -DHAWSER_INSTALL=ON)
run(${CMAKE_COMMAND} --install ${WORK}/in_project --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/shared)
check_shared_library(${WORK}/shared)
use_package(use_shared ${WORK}/shared testing)
