# If CLI11 is found: etude::cli11, for the program in tools/.
if(NOT TARGET etude::cli11)
  find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp)
  mark_as_advanced(CLI11_INCLUDE_DIR)
  if(CLI11_INCLUDE_DIR)
    add_library(etude::cli11 INTERFACE IMPORTED GLOBAL)
    target_include_directories(etude::cli11 INTERFACE ${CLI11_INCLUDE_DIR})
  endif()
endif()
