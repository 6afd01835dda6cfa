# etude::etude compiles all code that doesn't depend on a trainer's type once, in the build that links it, with that build's
# LibTorch and flags, so that files with trainers compile several times as fast. etude::testing does the same for etude/testing/.
if(TARGET etude::etude)
  return()  # found twice
endif()
get_target_property(etude_headers etude::base INTERFACE_INCLUDE_DIRECTORIES)
string(REGEX REPLACE "\\$<(BUILD|INSTALL)_INTERFACE:([^>]*)>" "\\2" etude_headers "${etude_headers}")
list(GET etude_headers 0 etude_headers)
file(GLOB_RECURSE etude_definitions RELATIVE ${etude_headers} CONFIGURE_DEPENDS ${etude_headers}/etude/*.ipp)
get_property(etude_tracker_headers GLOBAL PROPERTY etude_tracker_headers)

# Few files, since LibTorch's headers take most of the time of each: two of equal length, and one of the trackers.
foreach(file IN ITEMS parts training integrations testing)
  set(etude_${file} "")
endforeach()
foreach(definitions IN LISTS etude_definitions)
  string(REPLACE "impl/" "" declarations ${definitions})
  if(declarations MATCHES "^etude/(testing|integrations)/")
    set(file ${CMAKE_MATCH_1})
    # A file that needs a tracker's libraries is compiled if that tracker is enabled.
    if(declarations MATCHES "integrations/(shared/http|[a-z]+)" AND NOT CMAKE_MATCH_1 IN_LIST etude_tracker_headers AND NOT CMAKE_MATCH_1 STREQUAL "shared")
      continue()
    endif()
  elseif(declarations MATCHES "^etude/(dispatch|checkpoint|loop|tune|callbacks)/|^etude/[a-z_]+\\.ipp$")
    set(file training)
  else()
    set(file parts)
  endif()
  string(APPEND etude_${file} "#include \"${definitions}\"\n")
endforeach()
foreach(file IN ITEMS parts training integrations testing)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/etude/${file}.cpp CONTENT "${etude_${file}}" @ONLY)
endforeach()

function(etude_add_library name)
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARGN})
  # Otherwise g++ calls functions within a shared library through a table.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

set(etude_sources ${CMAKE_CURRENT_BINARY_DIR}/etude/parts.cpp ${CMAKE_CURRENT_BINARY_DIR}/etude/training.cpp)
if(etude_tracker_headers)
  list(APPEND etude_sources ${CMAKE_CURRENT_BINARY_DIR}/etude/integrations.cpp)
endif()
etude_add_library(etude ${etude_sources})
add_library(etude::etude ALIAS etude)
target_compile_definitions(etude PUBLIC ETUDE_COMPILED)
target_link_libraries(etude PUBLIC etude::base torch PRIVATE etude::gloo etude::tracker_libraries)

etude_add_library(etude_testing ${CMAKE_CURRENT_BINARY_DIR}/etude/testing.cpp)
add_library(etude::testing ALIAS etude_testing)
target_link_libraries(etude_testing PUBLIC etude::etude)

# Precompiles LibTorch and Etude, once for each target that links it (or once for several, with REUSE_FROM).
add_library(etude_pch INTERFACE)
add_library(etude::pch ALIAS etude_pch)
target_link_libraries(etude_pch INTERFACE etude::etude)
target_precompile_headers(etude_pch INTERFACE <torch/torch.h> <etude/etude.hpp>)
