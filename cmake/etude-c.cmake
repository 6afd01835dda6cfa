# etude::c: the C interface, libetude_c.so. Programs that link it need etude.h and a C compiler, and see neither C++ nor LibTorch.
if(NOT TARGET etude::exported OR TARGET etude::c)
  return()
endif()

etude_sources(etude_files "c/.*")
etude_add_library(etude_c_calls ${etude_files})
target_link_libraries(etude_c_calls PUBLIC etude::exported etude::parallel etude::report etude::trackers)
target_precompile_headers(etude_c_calls REUSE_FROM etude_tensors)

add_library(etude_c SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:etude_c_calls>)
add_library(etude::c ALIAS etude_c)
find_path(etude_c_include etude.h PATHS ${etude_src}/../include ${CMAKE_CURRENT_LIST_DIR}/../../../include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE REQUIRED)
target_include_directories(etude_c INTERFACE $<BUILD_INTERFACE:${etude_c_include}>)
target_link_libraries(etude_c PRIVATE etude_c_calls)
# Only the functions of etude.h are visible, whatever is linked, and the library calls its own functions even if the program has others
# of the same names.
target_link_options(etude_c PRIVATE -Wl,--version-script=${etude_src}/c/etude_c.map -Wl,-Bsymbolic-functions)
set_target_properties(etude_c PROPERTIES LINKER_LANGUAGE CXX SOVERSION 1 LINK_DEPENDS ${etude_src}/c/etude_c.map INSTALL_RPATH_USE_LINK_PATH ON)
set_property(TARGET etude_c APPEND PROPERTY INSTALL_RPATH ${etude_torch_libraries})
