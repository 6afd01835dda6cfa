# etude::etude: what of Etude depends on nobody's trainer, compiled once in the build that links it, with its LibTorch and its
# flags, so that the files which make trainers compile several times as fast. etude::testing is the same for etude/testing/.
if(TARGET etude)
  return()  # found twice
endif()
get_target_property(etude_headers etude::core INTERFACE_INCLUDE_DIRECTORIES)
string(REGEX REPLACE "\\$<(BUILD|INSTALL)_INTERFACE:([^>]*)>" "\\2" etude_headers "${etude_headers}")
list(GET etude_headers 0 etude_headers)
file(GLOB_RECURSE etude_definitions RELATIVE ${etude_headers} CONFIGURE_DEPENDS ${etude_headers}/etude/*.ipp)
get_property(etude_tracker_headers GLOBAL PROPERTY etude_tracker_headers)

# A few files, for most of the time of each goes to LibTorch's headers: two that take equally long, and one of the trackers.
foreach(file IN ITEMS parts training integrations testing)
  set(etude_${file} "")
endforeach()
foreach(definitions IN LISTS etude_definitions)
  string(REPLACE "impl/" "" declarations ${definitions})
  if(declarations MATCHES "^etude/(testing|integrations)/")
    set(file ${CMAKE_MATCH_1})
    # What needs a tracker's libraries is compiled where that tracker was asked for.
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
  # In a shared library g++ would else call each of its own functions through a table.
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
target_link_libraries(etude PUBLIC etude::header_only PRIVATE etude::tracker_libraries)

etude_add_library(etude_testing ${CMAKE_CURRENT_BINARY_DIR}/etude/testing.cpp)
add_library(etude::testing ALIAS etude_testing)
target_link_libraries(etude_testing PUBLIC etude::etude)

# For who links it: LibTorch and Etude precompiled, once a target (or once for several, with REUSE_FROM).
add_library(etude_pch INTERFACE)
add_library(etude::pch ALIAS etude_pch)
target_link_libraries(etude_pch INTERFACE etude::etude)
target_precompile_headers(etude_pch INTERFACE <torch/torch.h> <etude/etude.hpp>)
