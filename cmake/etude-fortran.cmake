# etude::fortran: the Fortran module. A project that has enabled Fortran compiles it, since compilers can't read each other's modules.
set(etude_fortran_files etude_c.f90 etude_memory.f90 etude.f90)
get_property(etude_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT Fortran IN_LIST etude_languages OR NOT TARGET etude::c OR TARGET etude::fortran)
  return()
endif()

list(TRANSFORM etude_fortran_files PREPEND ${etude_src}/fortran/ OUTPUT_VARIABLE etude_files)
add_library(etude_fortran STATIC EXCLUDE_FROM_ALL ${etude_files})
add_library(etude::fortran ALIAS etude_fortran)
set(etude_modules ${CMAKE_CURRENT_BINARY_DIR}/etude_modules)
set_target_properties(etude_fortran PROPERTIES POSITION_INDEPENDENT_CODE ON Fortran_MODULE_DIRECTORY ${etude_modules})
target_include_directories(etude_fortran PUBLIC $<BUILD_INTERFACE:${etude_modules}>)
target_link_libraries(etude_fortran PUBLIC etude::c PRIVATE $<TARGET_NAME_IF_EXISTS:etude::own_fortran_warnings>)
