# If libpng is found: etude::png, for programs that write samples as pictures without a tracker.
if(NOT TARGET etude::png)
  find_package(PNG QUIET)
  if(TARGET PNG::PNG)
    add_library(etude::png INTERFACE IMPORTED GLOBAL)
    target_link_libraries(etude::png INTERFACE etude::etude PNG::PNG)
  endif()
endif()
