# hawser.spdx.json: the libraries that the installed files are linked with, as SPDX 2.3. Its time is the date of the
# version, or SOURCE_DATE_EPOCH, so that two builds are equal.
set(spdx_packages "")
set(spdx_relations "")

# `relation`: how Hawser depends on the package.
function(hawser_spdx_package name version licence relation)
  string(REGEX REPLACE "[^A-Za-z0-9.-]" "-" id ${name})
  if(NOT version)
    set(version NOASSERTION)
  endif()
  string(APPEND spdx_packages ",
    {\"SPDXID\": \"SPDXRef-${id}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false,
     \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${licence}\", \"copyrightText\": \"NOASSERTION\"}")
  string(APPEND spdx_relations ",
    {\"spdxElementId\": \"SPDXRef-hawser\", \"relationshipType\": \"${relation}\", \"relatedSpdxElement\": \"SPDXRef-${id}\"}")
  set(spdx_packages "${spdx_packages}" PARENT_SCOPE)
  set(spdx_relations "${spdx_relations}" PARENT_SCOPE)
endfunction()

# The licences of the libraries that Hawser may be linked with, by their names of pkg-config.
set(spdx_licence_liburing "MIT OR LGPL-2.1-or-later")
set(spdx_licence_libcares "MIT")
set(spdx_licence_libibverbs "GPL-2.0-only OR Linux-OpenIB")
set(spdx_licence_zlib "Zlib")
set(spdx_licence_snappy "BSD-3-Clause")
set(spdx_licence_libnghttp2 "MIT")
set(spdx_licence_libzstd "BSD-3-Clause OR GPL-2.0-only")
set(spdx_licence_openssl "Apache-2.0")
set(spdx_licence_protobuf "BSD-3-Clause")

get_property(spdx_libraries GLOBAL PROPERTY HAWSER_LAYER_LIBRARIES)
get_property(spdx_components GLOBAL PROPERTY HAWSER_COMPONENTS)
foreach(component IN LISTS spdx_components)
  get_property(libraries GLOBAL PROPERTY HAWSER_COMPONENT_LIBRARIES_${component})
  list(APPEND spdx_libraries ${libraries})
endforeach()
list(TRANSFORM spdx_libraries REPLACE "^PkgConfig::" "")
list(REMOVE_DUPLICATES spdx_libraries)
list(SORT spdx_libraries)
foreach(library IN LISTS spdx_libraries)
  if(NOT DEFINED spdx_licence_${library})
    message(FATAL_ERROR "cmake/sbom.cmake has no licence of ${library}")
  endif()
  hawser_spdx_package(${library} "${${library}_VERSION}" "${spdx_licence_${library}}" DYNAMIC_LINK)
endforeach()
# Loaded when it is first used; only its headers are compiled.
if(ucx_FOUND)
  hawser_spdx_package(ucx "${ucx_VERSION}" "BSD-3-Clause" DEPENDS_ON)
endif()
if(HAWSER_BUILD_CLI OR HAWSER_BUILD_BENCH)
  foreach(library fmt CLI11 nlohmann_json)
    find_package(${library} QUIET)
  endforeach()
  hawser_spdx_package(fmt "${fmt_VERSION}" "MIT" DYNAMIC_LINK)
  hawser_spdx_package(CLI11 "${CLI11_VERSION}" "BSD-3-Clause" STATIC_LINK)
  hawser_spdx_package(nlohmann_json "${nlohmann_json_VERSION}" "MIT" STATIC_LINK)
endif()

if(DEFINED ENV{SOURCE_DATE_EPOCH})
  string(TIMESTAMP spdx_time "%Y-%m-%dT%H:%M:%SZ" UTC)
else()
  file(STRINGS CHANGELOG.md spdx_time REGEX "^## ${PROJECT_VERSION} \\(" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*\\(([-0-9]+)\\).*" "\\1T00:00:00Z" spdx_time "${spdx_time}")
endif()
string(SHA256 spdx_content "${spdx_time}${spdx_packages}")
file(CONFIGURE OUTPUT hawser.spdx.json @ONLY CONTENT "{
  \"spdxVersion\": \"SPDX-2.3\", \"dataLicense\": \"CC0-1.0\", \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"hawser-@PROJECT_VERSION@\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/hawser-@PROJECT_VERSION@-@spdx_content@\",
  \"creationInfo\": {\"created\": \"@spdx_time@\", \"creators\": [\"Tool: hawser-cmake-@PROJECT_VERSION@\"]},
  \"packages\": [
    {\"SPDXID\": \"SPDXRef-hawser\", \"name\": \"hawser\", \"versionInfo\": \"@PROJECT_VERSION@\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false,
     \"licenseConcluded\": \"Apache-2.0\", \"licenseDeclared\": \"Apache-2.0\",
     \"copyrightText\": \"Copyright 2026 The Hawser developers\"}@spdx_packages@
  ],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-hawser\"}@spdx_relations@
  ]
}
")
install(FILES ${PROJECT_BINARY_DIR}/hawser.spdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
