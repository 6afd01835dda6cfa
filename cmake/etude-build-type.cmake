# Without a build type, CMake doesn't optimise at all.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL AND PROJECT_NAME STREQUAL "etude")
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
  elseif(NOT CMAKE_CXX_FLAGS MATCHES "-O")
    message(WARNING "Etude: CMAKE_BUILD_TYPE is not set, so the program is not optimised; add -DCMAKE_BUILD_TYPE=Release")
  endif()
endif()
