# Compiles for 64-bit Arm with Debian's g++-aarch64-linux-gnu, and runs the results with its qemu-user. ETUDE_SYSROOT names a folder
# with that architecture's headers and libraries: docs/building.md says how to make it.
if(NOT EXISTS "${ETUDE_SYSROOT}/lib/ld-linux-aarch64.so.1")
  message(FATAL_ERROR "ETUDE_SYSROOT is '${ETUDE_SYSROOT}': must be a folder with the headers and libraries of 64-bit Arm")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ETUDE_SYSROOT)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${ETUDE_SYSROOT})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${ETUDE_SYSROOT})
set(ETUDE_LDD ${CMAKE_CROSSCOMPILING_EMULATOR} -E LD_TRACE_LOADED_OBJECTS=1 ${ETUDE_SYSROOT}/lib/ld-linux-aarch64.so.1)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
