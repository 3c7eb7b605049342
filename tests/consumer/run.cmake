# cmake -DBUILD=<build folder> -DWORK=<folder to use> -DCOMPILER=<c++> -DLIBDIR=<lib> -P run.cmake
# Installs the build into WORK and uses it as another project would: through find_package and through pkg-config.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endfunction()

file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
# An installed tree can be moved.
file(RENAME ${WORK}/first ${prefix})

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/cmake -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Debug)
run(${CMAKE_COMMAND} --build ${WORK}/cmake)
run(${WORK}/cmake/consumer)

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND pkg-config --cflags --libs hawser OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
file(GLOB local_transport ${CMAKE_CURRENT_LIST_DIR}/../local_transport/*.cpp)
run(${COMPILER} -std=c++23 -I${CMAKE_CURRENT_LIST_DIR}/../local_transport ${CMAKE_CURRENT_LIST_DIR}/main.cpp ${local_transport} -o ${WORK}/pkg_config_consumer ${flags})
run(${WORK}/pkg_config_consumer)
