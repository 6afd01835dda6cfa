# If libzip is found: etude::zip, and etude::torch_file for programs that read PyTorch's files. libzip's own CMake config fails
# on Debian unless the command-line tools are installed too.
if(NOT TARGET etude::torch_file)
  find_path(LIBZIP_INCLUDE_DIR zip.h)
  find_library(LIBZIP_LIBRARY zip)
  mark_as_advanced(LIBZIP_INCLUDE_DIR LIBZIP_LIBRARY)
  if(LIBZIP_INCLUDE_DIR AND LIBZIP_LIBRARY)
    add_library(etude::zip INTERFACE IMPORTED GLOBAL)
    target_include_directories(etude::zip INTERFACE ${LIBZIP_INCLUDE_DIR})
    target_link_libraries(etude::zip INTERFACE ${LIBZIP_LIBRARY})
    add_library(etude::torch_file INTERFACE IMPORTED GLOBAL)
    target_link_libraries(etude::torch_file INTERFACE etude::etude etude::zip)
  endif()
endif()
