# Writes etude.spdx.json (SPDX 2.3): Etude and the libraries that this build uses, with versions and licences. docs/dependencies.md
# says which target links which library.
set(etude_packages "")
set(etude_relationships "")

# etude_sbom_package(NAME VERSION LICENCE SUPPLIER): leaves out a library that wasn't found.
function(etude_sbom_package name version licence supplier)
  if(NOT version)
    return()
  endif()
  string(MAKE_C_IDENTIFIER ${name} id)
  string(REPLACE "_" "-" id ${id})
  string(APPEND etude_packages "    {\n      \"name\": \"${name}\",\n      \"SPDXID\": \"SPDXRef-${id}\",\n      \"versionInfo\": \"${version}\",\n"
         "      \"supplier\": \"Organization: ${supplier}\",\n      \"downloadLocation\": \"NOASSERTION\",\n      \"filesAnalyzed\": false,\n"
         "      \"licenseConcluded\": \"${licence}\",\n      \"licenseDeclared\": \"${licence}\",\n      \"copyrightText\": \"NOASSERTION\"\n    },\n")
  if(NOT name STREQUAL "etude")
    string(APPEND etude_relationships "    {\"spdxElementId\": \"SPDXRef-etude\", \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": \"SPDXRef-${id}\"},\n")
  endif()
  set(etude_packages "${etude_packages}" PARENT_SCOPE)
  set(etude_relationships "${etude_relationships}" PARENT_SCOPE)
endfunction()

# Sets `version` to the numbers that a header defines, joined by points.
function(etude_version_in header version)
  set(numbers "")
  if(EXISTS "${header}")
    foreach(macro IN LISTS ARGN)
      file(STRINGS ${header} line REGEX "^#define ${macro} +\"?[0-9.]+\"?")
      string(REGEX MATCH "[0-9.]+\"?$" number "${line}")
      string(REPLACE "\"" "" number "${number}")
      list(APPEND numbers ${number})
    endforeach()
  endif()
  list(JOIN numbers "." numbers)
  set(${version} "${numbers}" PARENT_SCOPE)
endfunction()

etude_version_in("${XXHASH_INCLUDE_DIR}/xxhash.h" xxhash XXH_VERSION_MAJOR XXH_VERSION_MINOR XXH_VERSION_RELEASE)
etude_version_in("${PROTOZERO_INCLUDE_DIR}/protozero/version.hpp" protozero PROTOZERO_VERSION_STRING)
etude_version_in("${LIBCSV_INCLUDE_DIR}/csv.h" libcsv CSV_MAJOR CSV_MINOR CSV_RELEASE)
foreach(package IN ITEMS CURL OpenSSL)  # the trackers find them in a different scope
  if(TARGET ${etude_target_of_${package}})
    find_package(${package} QUIET)
  endif()
endforeach()
find_file(etude_zipconf zipconf.h PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE)
etude_version_in("${etude_zipconf}" libzip LIBZIP_VERSION)
find_file(etude_jconfig jconfig.h HINTS ${JPEG_INCLUDE_DIRS} PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE)
etude_version_in("${etude_jconfig}" libjpeg_turbo LIBJPEG_TURBO_VERSION)
etude_sbom_package(etude ${PROJECT_VERSION} MIT "The Etude authors")
etude_sbom_package(LibTorch "${Torch_VERSION}" BSD-3-Clause "PyTorch Foundation")
etude_sbom_package(Boost "${Boost_VERSION_STRING}" BSL-1.0 "Boost C++ Libraries")
etude_sbom_package(fmt "${fmt_VERSION}" MIT "Victor Zverovich and contributors")
etude_sbom_package(nlohmann_json "${nlohmann_json_VERSION}" MIT "Niels Lohmann")
etude_sbom_package(xxHash "${xxhash}" BSD-2-Clause "Yann Collet")
etude_sbom_package(libzip "${libzip}" BSD-3-Clause "Dieter Baron and Thomas Klausner")
etude_sbom_package(libcsv "${libcsv}" LGPL-2.1-or-later "Robert Gamble")
etude_sbom_package(libpng "${PNG_VERSION_STRING}" libpng-2.0 "The PNG Reference Library Authors")
etude_sbom_package(libjpeg-turbo "${libjpeg_turbo}" "IJG AND BSD-3-Clause AND Zlib" "The libjpeg-turbo Project")
etude_sbom_package(protozero "${protozero}" BSD-2-Clause Mapbox)
etude_sbom_package(curl "${CURL_VERSION_STRING}" curl "Daniel Stenberg and contributors")
etude_sbom_package(OpenSSL "${OPENSSL_VERSION}" Apache-2.0 "The OpenSSL Project")

string(REGEX REPLACE ",\n$" "\n" etude_packages "${etude_packages}")
string(TIMESTAMP etude_created UTC)
file(CONFIGURE OUTPUT etude.spdx.json @ONLY CONTENT [[{
  "spdxVersion": "SPDX-2.3",
  "dataLicense": "CC0-1.0",
  "SPDXID": "SPDXRef-DOCUMENT",
  "name": "etude-@PROJECT_VERSION@",
  "documentNamespace": "urn:etude:sbom:@PROJECT_VERSION@:@etude_created@",
  "creationInfo": {"created": "@etude_created@", "creators": ["Organization: The Etude authors"]},
  "packages": [
@etude_packages@  ],
  "relationships": [
@etude_relationships@    {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-etude"}
  ]
}
]])
install(FILES ${PROJECT_BINARY_DIR}/etude.spdx.json TYPE DOC)
