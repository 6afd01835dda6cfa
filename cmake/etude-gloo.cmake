# etude::gloo provides Gloo's headers, which LibTorch's headers include but its packages leave out: from an installed Gloo, or else
# from cmake/gloo, which declares as much as LibTorch's headers need.
if(NOT TARGET etude::gloo)
  find_path(ETUDE_GLOO_INCLUDE_DIR gloo/algorithm.h HINTS ${TORCH_INCLUDE_DIRS})
  mark_as_advanced(ETUDE_GLOO_INCLUDE_DIR)
  add_library(etude::gloo INTERFACE IMPORTED GLOBAL)
  if(ETUDE_GLOO_INCLUDE_DIR)
    target_include_directories(etude::gloo SYSTEM INTERFACE ${ETUDE_GLOO_INCLUDE_DIR})
  else()
    target_include_directories(etude::gloo SYSTEM INTERFACE ${CMAKE_CURRENT_LIST_DIR}/gloo)
  endif()
endif()
