# Finds LibTorch and creates its target, torch. If none is usable, etude_torch_fault holds the reason and the remedy.
#
# LibTorch is the one that Torch_DIR, Torch_ROOT or CMAKE_PREFIX_PATH names, else the active Python's wheel, else the system's.
# For a CUDA build, LibTorch's CMake files require a matching CUDA toolkit, but its libraries don't. So this file creates the
# targets itself: for the CPU, and for the GPU too if the NVIDIA libraries that Python uses are installed. A project with CUDA
# code calls find_package(Torch) first, and this file then uses the targets that it created.
set(etude_torch_fault "")
set(etude_torch_remedy "Name one with -DTorch_DIR=FOLDER_OF_TorchConfig.cmake, or install one: pip install torch (2.7 or later), or Debian's libtorch-dev")

# Sets Torch_DIR in the cache, unless it is set, and `version` to that LibTorch's version.
function(etude_locate_torch version)
  # The version file is next to Torch's config, and including it has no side effects.
  set(search Torch QUIET CONFIGS TorchConfigVersion.cmake)
  if(NOT Torch_DIR)
    find_package(${search} NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH)
  endif()
  if(NOT Torch_DIR AND NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_DISABLE_FIND_PACKAGE_Torch)
    etude_locate_torch_of_python()
  endif()
  if(NOT Torch_DIR)
    find_package(${search})
  endif()
  include(${Torch_DIR}/TorchConfigVersion.cmake OPTIONAL)
  set(${version} ${PACKAGE_VERSION} PARENT_SCOPE)
endfunction()

function(etude_locate_torch_of_python)
  find_program(python NAMES python3 python NO_CACHE)
  if(NOT python)
    return()
  endif()
  # Located without importing it, which takes seconds.
  execute_process(COMMAND ${python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                  OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(config ${package}/share/cmake/Torch)
  if(NOT EXISTS ${config}/TorchConfig.cmake)
    return()
  endif()
  etude_torch_has_old_abi(${config} is_old)
  if(is_old)
    message(STATUS "Etude: skipping the LibTorch of ${python}: it uses the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0)")
  else()
    set(Torch_DIR ${config} CACHE PATH "The folder of TorchConfig.cmake" FORCE)
  endif()
endfunction()

# Sets `result` to whether a config's LibTorch was compiled with GCC's old std::string, from before 2015.
function(etude_torch_has_old_abi config result)
  file(STRINGS ${config}/TorchConfig.cmake old REGEX "_GLIBCXX_USE_CXX11_ABI=0")
  if(old)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Sets `result` to whether LibTorch, in the layout of pip and pytorch.org, was built for CUDA.
function(etude_torch_is_for_cuda prefix result)
  set(${result} FALSE PARENT_SCOPE)
  set(config ${prefix}/share/cmake/Caffe2/Caffe2Config.cmake)
  if(EXISTS ${config} AND EXISTS ${prefix}/lib/libtorch_cuda.so)
    file(STRINGS ${config} uses_cuda REGEX "^ *set\\(CAFFE2_USE_CUDA (ON|1)\\)")
    if(uses_cuda)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets `missing` to the names of a library's dependencies that the loader doesn't find, and `found` to the files of dependencies
# outside the linker's default folders. ETUDE_LDD is the command that lists them, if it isn't ldd.
function(etude_dependencies library missing found)
  if(NOT ETUDE_LDD)
    set(ETUDE_LDD ldd)
  endif()
  set(names "")
  set(files "")
  execute_process(COMMAND ${ETUDE_LDD} ${library} OUTPUT_VARIABLE lines ERROR_QUIET)
  string(REGEX MATCHALL "[^\n\t]+" lines "${lines}")
  foreach(line IN LISTS lines)
    if(line MATCHES "^(.+) => not found")
      list(APPEND names ${CMAKE_MATCH_1})
    elseif(line MATCHES " => (/.+) \\(0x")
      cmake_path(SET file NORMALIZE ${CMAKE_MATCH_1})
      cmake_path(GET file PARENT_PATH folder)
      # An emulated loader prints paths in CMAKE_SYSROOT without that prefix.
      if(NOT folder IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES AND NOT (CMAKE_SYSROOT AND EXISTS ${CMAKE_SYSROOT}${file}))
        list(APPEND files ${file})
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${missing} "${names}" PARENT_SCOPE)
  set(${found} "${files}" PARENT_SCOPE)
endfunction()

function(etude_add_torch_library name prefix)
  etude_dependencies(${prefix}/lib/lib${name}.so missing found)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES
    IMPORTED_LOCATION ${prefix}/lib/lib${name}.so
    IMPORTED_LINK_DEPENDENT_LIBRARIES "${found}"
    INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include;${prefix}/include/torch/csrc/api/include")
endfunction()

# Creates c10, torch_cpu and torch for a CUDA build of LibTorch. If all their dependencies are installed, it also creates c10_cuda
# and torch_cuda, which torch then loads.
function(etude_make_torch_targets prefix)
  if(CMAKE_CROSSCOMPILING AND NOT ETUDE_LDD)
    set(etude_torch_fault "LibTorch in ${prefix} is built for CUDA: set ETUDE_LDD in the toolchain file to the command that lists a library's dependencies, as cmake/toolchains/aarch64-linux-gnu.cmake does" PARENT_SCOPE)
    return()
  endif()
  etude_dependencies(${prefix}/lib/libtorch_cpu.so missing found)
  if(missing)
    list(JOIN missing ", " missing)
    set(etude_torch_fault "LibTorch in ${prefix} needs ${missing}: install what its wheel requires (pip install torch)" PARENT_SCOPE)
    return()
  endif()
  etude_add_torch_library(c10 ${prefix})
  etude_add_torch_library(torch_cpu ${prefix})
  # Some headers depend on how LibTorch was built.
  file(READ ${prefix}/share/cmake/Caffe2/Caffe2Targets.cmake targets)
  if(targets MATCHES "set_target_properties\\(torch_cpu PROPERTIES\n *INTERFACE_COMPILE_DEFINITIONS \"([A-Z0-9_;]+)\"")
    set_property(TARGET torch_cpu PROPERTY INTERFACE_COMPILE_DEFINITIONS ${CMAKE_MATCH_1})
  endif()
  add_library(torch INTERFACE IMPORTED GLOBAL)
  set_property(TARGET torch PROPERTY INTERFACE_LINK_LIBRARIES torch_cpu c10)

  etude_dependencies(${prefix}/lib/libtorch_cuda.so missing found)
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "Etude: LibTorch is used on the CPU only; on a GPU it needs ${missing}")
    return()
  endif()
  etude_add_torch_library(c10_cuda ${prefix})
  etude_add_torch_library(torch_cuda ${prefix})
  # No symbol of it is used, but it must be loaded to register its kernels.
  set_property(TARGET torch APPEND PROPERTY INTERFACE_LINK_LIBRARIES
               "-Wl,--push-state,--no-as-needed \"${prefix}/lib/libtorch_cuda.so\" -Wl,--pop-state" torch_cuda c10_cuda)
endfunction()

if(NOT TARGET torch)
  etude_locate_torch(etude_torch_version)
  if(NOT Torch_DIR)
    set(etude_torch_fault "LibTorch not found. ${etude_torch_remedy}")
  elseif(NOT EXISTS ${Torch_DIR}/TorchConfig.cmake)
    set(etude_torch_fault "Torch_DIR is ${Torch_DIR}, which has no TorchConfig.cmake. ${etude_torch_remedy}")
  else()
    cmake_path(ABSOLUTE_PATH Torch_DIR NORMALIZE OUTPUT_VARIABLE etude_torch_prefix)
    string(REGEX REPLACE "/[^/]+/[^/]+/[^/]+/?$" "" etude_torch_prefix ${etude_torch_prefix})
    etude_torch_has_old_abi(${Torch_DIR} etude_torch_is_old)
    etude_torch_is_for_cuda(${etude_torch_prefix} etude_torch_for_cuda)
    if(etude_torch_version AND etude_torch_version VERSION_LESS 1.13)
      set(etude_torch_fault "LibTorch in ${Torch_DIR} is ${etude_torch_version}; Etude needs 1.13 or later. ${etude_torch_remedy}")
    elseif(etude_torch_is_old)
      set(etude_torch_fault "LibTorch in ${Torch_DIR} uses the old C++ ABI (_GLIBCXX_USE_CXX11_ABI=0). ${etude_torch_remedy}")
    elseif(etude_torch_for_cuda)
      etude_make_torch_targets(${etude_torch_prefix})
      set(TORCH_INSTALL_PREFIX ${etude_torch_prefix})
      set(TORCH_INCLUDE_DIRS ${etude_torch_prefix}/include ${etude_torch_prefix}/include/torch/csrc/api/include)
      set(TORCH_LIBRARIES torch)
      set(Torch_VERSION ${etude_torch_version})
      set(Torch_FOUND TRUE)
    else()
      # The pip wheel's config warns that kineto is missing, although libtorch_cpu contains it.
      set(kineto_LIBRARY c10)
      # Torch's config may pick up Caffe2 from a different LibTorch on this machine, so this names the right one.
      set(Caffe2_DIR ${Torch_DIR}/../Caffe2 CACHE PATH "The folder of Caffe2Config.cmake" FORCE)
      if(CMAKE_CROSSCOMPILING)
        list(APPEND CMAKE_FIND_ROOT_PATH ${etude_torch_prefix})  # where Torch's config looks for its libraries
      endif()
      find_package(Torch QUIET)  # its message may name a file of a different LibTorch
      if(NOT TARGET torch)
        set(etude_torch_fault "LibTorch in ${Torch_DIR} can't be used: ${Torch_NOT_FOUND_MESSAGE}. ${etude_torch_remedy}")
      elseif(CMAKE_CROSSCOMPILING)
        # Unlike the loader, the linker doesn't search libtorch_cpu's folders for the dependencies of its dependencies.
        etude_dependencies(${etude_torch_prefix}/lib/libtorch_cpu.so missing found)
        foreach(file IN LISTS found)
          cmake_path(GET file PARENT_PATH folder)
          set_property(TARGET torch APPEND PROPERTY INTERFACE_LINK_OPTIONS -Wl,-rpath-link,${folder})
        endforeach()
      endif()
    endif()
  endif()
endif()
if(NOT etude_torch_fault AND TORCH_INSTALL_PREFIX)
  include(FindPackageMessage)
  find_package_message(etude "Etude: LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}" "[${Torch_VERSION}][${TORCH_INSTALL_PREFIX}]")
endif()
