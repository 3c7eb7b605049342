# hawser_layer(FOLDER [APART | COMPONENT NAME [LINKS COMPONENT...] | LEFT_OUT] [DEPENDS FOLDER...]
#              [LIBRARIES TARGET...] [DEFINITIONS NAME...] [SYSTEM_INCLUDES FOLDER...]):
# the folder src/FOLDER with its subfolders that are not layers, as the object library hawser_FOLDER. Its sources may
# include the headers of FOLDER and of DEPENDS alone. Its *_test.cpp files become one test program of that name, linked
# against the whole library; they may include HAWSER_TEST_LAYERS besides. APART: a static library of its own, for tests
# and programs; it is not a part of libhawser.a and is built when something links it. COMPONENT: likewise, and installed
# as the component NAME of the package, hawser::NAME, whose users get LIBRARIES and the components LINKS too. LEFT_OUT:
# its sources are not built.
# hawser_leave_out(FOLDER): the sources of src/FOLDER, which is a part of a layer, are not built.
# hawser_library() makes the targets, when all layers are known.
set_property(GLOBAL PROPERTY HAWSER_LAYERS "")
set_property(GLOBAL PROPERTY HAWSER_FOLDERS_LEFT_OUT "")
set_property(GLOBAL PROPERTY HAWSER_LAYER_OBJECTS "")
set_property(GLOBAL PROPERTY HAWSER_LAYER_LIBRARIES "")
set_property(GLOBAL PROPERTY HAWSER_LAYER_TESTS "")
set_property(GLOBAL PROPERTY HAWSER_LIBRARIES_APART "")
set_property(GLOBAL PROPERTY HAWSER_COMPONENTS "")

# Tests of a layer may include these layers as well: they may run over the simulated network.
set(HAWSER_TEST_LAYERS transport/sim transport exec table os heap base)

function(hawser_layer folder)
  set_property(GLOBAL APPEND PROPERTY HAWSER_LAYERS ${folder})
  set_property(GLOBAL PROPERTY HAWSER_LAYER_${folder} ${ARGN})
endfunction()

function(hawser_leave_out folder)
  set_property(GLOBAL APPEND PROPERTY HAWSER_FOLDERS_LEFT_OUT ${folder})
endfunction()

# Sets `result` to the layer of a file: the longest of the folders `layers` that contains it.
function(hawser_layer_of file layers result)
  cmake_path(GET file PARENT_PATH owner)
  while(owner AND NOT owner IN_LIST layers)
    cmake_path(GET owner PARENT_PATH owner)
  endwhile()
  set(${result} "${owner}" PARENT_SCOPE)
endfunction()

# Makes the targets of a layer from its sources, which are relative to src/.
function(hawser_layer_targets folder sources)
  get_property(arguments GLOBAL PROPERTY HAWSER_LAYER_${folder})
  cmake_parse_arguments(arg "APART;LEFT_OUT" "COMPONENT" "LINKS;DEPENDS;LIBRARIES;DEFINITIONS;SYSTEM_INCLUDES"
                        ${arguments})
  if(arg_LEFT_OUT)
    return()
  endif()
  string(REPLACE "/" "_" name ${folder})
  list(TRANSFORM sources PREPEND ${PROJECT_SOURCE_DIR}/src/)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  get_property(layers GLOBAL PROPERTY HAWSER_LAYERS)
  foreach(other IN LISTS layers)
    if(NOT other STREQUAL folder AND NOT other IN_LIST arg_DEPENDS)
      string(REPLACE "/" "_" other_name ${other})
      list(APPEND hidden ${PROJECT_BINARY_DIR}/hidden/${other_name})
      if(NOT other IN_LIST HAWSER_TEST_LAYERS)
        list(APPEND hidden_from_tests ${PROJECT_BINARY_DIR}/hidden/${other_name})
      endif()
    endif()
  endforeach()
  if(sources)
    if(arg_COMPONENT)
      add_library(hawser_${name} STATIC ${sources})
      add_library(hawser::${arg_COMPONENT} ALIAS hawser_${name})
      set_target_properties(hawser_${name} PROPERTIES EXPORT_NAME ${arg_COMPONENT} OUTPUT_NAME hawser_${arg_COMPONENT})
      list(TRANSFORM arg_LINKS PREPEND hawser:: OUTPUT_VARIABLE linked)
      target_link_libraries(hawser_${name} PUBLIC ${linked} hawser ${arg_LIBRARIES})
      target_compile_features(hawser_${name} PUBLIC cxx_std_23)
      set_property(GLOBAL PROPERTY HAWSER_LIBRARIES_OF_${name} hawser_${name})
      if(NOT HAWSER_INSTALL)
        # Built when something links it.
        set_target_properties(hawser_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      endif()
      set_property(GLOBAL APPEND PROPERTY HAWSER_COMPONENTS ${arg_COMPONENT})
      set_property(GLOBAL PROPERTY HAWSER_COMPONENT_TARGETS_${arg_COMPONENT} hawser_${name})
      set_property(GLOBAL PROPERTY HAWSER_COMPONENT_LIBRARIES_${arg_COMPONENT} ${arg_LIBRARIES})
      set_property(GLOBAL PROPERTY HAWSER_COMPONENT_LINKS_${arg_COMPONENT} ${arg_LINKS})
    elseif(arg_APART)
      add_library(hawser_${name} STATIC EXCLUDE_FROM_ALL ${sources})
      target_link_libraries(hawser_${name} INTERFACE hawser)
      set_property(GLOBAL APPEND PROPERTY HAWSER_LIBRARIES_APART hawser_${name})
    else()
      add_library(hawser_${name} OBJECT ${sources})
      set_property(GLOBAL APPEND PROPERTY HAWSER_LAYER_OBJECTS hawser_${name})
      set_property(GLOBAL APPEND PROPERTY HAWSER_LAYER_LIBRARIES ${arg_LIBRARIES})
    endif()
    get_property(exported GLOBAL PROPERTY HAWSER_EXPORTED_HEADERS)
    target_include_directories(hawser_${name} PRIVATE ${hidden} ${exported} ${PROJECT_SOURCE_DIR}/include
                                                      ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(hawser_${name} SYSTEM PRIVATE ${arg_SYSTEM_INCLUDES})
    target_compile_definitions(hawser_${name} PRIVATE ${arg_DEFINITIONS})
    target_link_libraries(hawser_${name} PRIVATE $<BUILD_INTERFACE:hawser_flags> ${arg_LIBRARIES})
    hawser_precompile(hawser_${name} std)
    hawser_batch(hawser_${name})
  endif()
  if(tests)
    set_property(GLOBAL APPEND PROPERTY HAWSER_LAYER_TESTS ${name})
    set_property(GLOBAL PROPERTY HAWSER_TESTS_OF_${name} ${tests})
    set_property(GLOBAL PROPERTY HAWSER_HIDDEN_FROM_TESTS_OF_${name} ${hidden_from_tests})
  endif()
endfunction()

# The include path of a layer begins with a folder for each layer that it does not depend on. These folders have an
# #error for each header of that layer: a wrong include does not compile, and all other headers keep their real paths in
# messages, debug information and editors. tools/tidy.py refuses other ways to name a header, such as
# "../rpc/session.h".
function(hawser_hide header layer)
  string(REPLACE "/" "_" name ${layer})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/hidden/${name}/${header} @ONLY CONTENT "#pragma once
#error \"this layer must not include @header@: it does not depend on the layer @layer@ (CMakeLists.txt)\"
")
endfunction()

# Only symbols that public headers declare are visible outside a shared library: Hawser's own, or one that a project
# links Hawser into. The library is compiled with -fvisibility=hidden, and its include path has a folder with one header
# for each public header, which includes that one with default visibility. So no declaration needs an attribute.
# cmake/hawser.map.in gives the exported symbols their version.
function(hawser_export_public_headers)
  set(folder ${PROJECT_BINARY_DIR}/exported)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/*.h)
  foreach(header IN LISTS headers)
    file(CONFIGURE OUTPUT ${folder}/${header} @ONLY CONTENT "#pragma once
#pragma GCC visibility push(default)
#include \"@PROJECT_SOURCE_DIR@/include/@header@\"
#pragma GCC visibility pop
")
  endforeach()
  set_property(GLOBAL PROPERTY HAWSER_EXPORTED_HEADERS ${folder})
  target_compile_options(hawser_flags INTERFACE -fvisibility=hidden)
endfunction()

# Completes the component testing, the public test kit, with the simulated network.
function(hawser_testing_library)
  target_sources(hawser_testing PRIVATE $<TARGET_OBJECTS:hawser_transport_sim>)
endfunction()

# Makes the library that users link, from the objects of all layers.
function(hawser_library)
  get_property(layers GLOBAL PROPERTY HAWSER_LAYERS)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/*.h
       ${PROJECT_SOURCE_DIR}/src/*.cpp)
  get_property(left_out GLOBAL PROPERTY HAWSER_FOLDERS_LEFT_OUT)
  foreach(folder IN LISTS left_out)
    list(FILTER files EXCLUDE REGEX "^${folder}/")
  endforeach()
  foreach(file IN LISTS files)
    hawser_layer_of(${file} "${layers}" layer)
    if(NOT layer)
      message(FATAL_ERROR "src/${file} lies in no layer: add hawser_layer() for its folder to CMakeLists.txt")
    endif()
    if(file MATCHES "\\.h$")
      hawser_hide(${file} "${layer}")
    else()
      list(APPEND sources_${layer} ${file})
    endif()
  endforeach()
  if(HAWSER_SHARED)
    add_library(hawser SHARED)
  else()
    add_library(hawser STATIC)
  endif()
  if(HAWSER_SHARED OR NOT PROJECT_IS_TOP_LEVEL)
    hawser_export_public_headers()
  endif()
  add_library(hawser::hawser ALIAS hawser)
  foreach(layer IN LISTS layers)
    hawser_layer_targets(${layer} "${sources_${layer}}")
  endforeach()

  get_property(objects GLOBAL PROPERTY HAWSER_LAYER_OBJECTS)
  get_property(libraries GLOBAL PROPERTY HAWSER_LAYER_LIBRARIES)
  list(REMOVE_DUPLICATES libraries)
  # Its names for the vendor's objects, such as Channel, are those of other classes.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/transport/rdma/device/ibverbs.cpp
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # It includes the kernel's definition of tcp_info, and other sources include that of the C library.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/transport/tcp/tcp_stream.cpp
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # It uses symbols that the shared library does not export. In a file of its own it is linked only if it is used.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/transport/sim/sim_transport.cpp
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(object IN LISTS objects)
    target_sources(hawser PRIVATE $<TARGET_OBJECTS:${object}>)
  endforeach()
  target_include_directories(hawser PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(hawser PUBLIC cxx_std_23)
  set_target_properties(hawser PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(hawser PUBLIC Threads::Threads PRIVATE ${libraries})
  if(NOT PROJECT_IS_TOP_LEVEL)
    # Warnings of the project that adds Hawser do not apply to its headers.
    set_target_properties(hawser PROPERTIES SYSTEM ON)
  endif()
  if(HAWSER_SHARED)
    # While the version is 0.x, each minor version has an interface of its own.
    set(version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    set_target_properties(hawser PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${version})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/hawser.map.in ${PROJECT_BINARY_DIR}/hawser.map @ONLY)
    target_link_libraries(hawser PRIVATE hawser_flags)
    target_link_options(hawser PRIVATE LINKER:--version-script=${PROJECT_BINARY_DIR}/hawser.map LINKER:--no-undefined)
    set_target_properties(hawser PROPERTIES LINK_DEPENDS ${PROJECT_BINARY_DIR}/hawser.map)
  endif()
endfunction()
