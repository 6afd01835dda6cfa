# The contents of the Python wheel: all libraries as libetude.so, the headers, a CMake package that finds them, the program, and the
# Python tools. `cmake --install BUILD --component wheel` installs them; packaging/python makes the wheel from that.

# Links the objects of the static libraries and of the program, so that nothing is compiled twice.
set(etude_wheel_components core pages study tensors etude parallel search report exported testing csv png images torch_file trackers tensorboard
    wandb comet mlflow azureml codecarbon)
set(etude_wheel_objects "")
set(etude_wheel_libraries "")

# etude_wheel_gather(DEFINITIONS TARGET): appends a target's objects, libraries and includes to the lists above, and sets
# DEFINITIONS to its compile definitions, including those of targets that it links.
function(etude_wheel_gather definitions target)
  set(gathered "")
  set(visited "")
  set(waiting ${target})
  while(waiting)
    list(POP_FRONT waiting target)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" target "${target}")
    if(TARGET ${target})
      get_target_property(name ${target} ALIASED_TARGET)
      if(name)
        set(target ${name})
      endif()
    endif()
    if(target IN_LIST visited OR target MATCHES "^\\$<" OR target STREQUAL "torch" OR target STREQUAL "Threads::Threads")
      continue()
    endif()
    list(APPEND visited ${target})
    if(NOT TARGET ${target} OR NOT target MATCHES "^etude(_|::|$)")
      list(APPEND etude_wheel_libraries ${target})
      continue()
    endif()
    set(properties INTERFACE_LINK_LIBRARIES)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND etude_wheel_objects ${target})
      list(APPEND properties LINK_LIBRARIES)
    endif()
    foreach(property IN LISTS properties)
      get_target_property(linked ${target} ${property})
      if(linked)
        list(APPEND waiting ${linked})
      endif()
    endforeach()
    get_target_property(own ${target} INTERFACE_COMPILE_DEFINITIONS)
    if(own)
      list(APPEND gathered ${own})
    endif()
  endwhile()
  list(REMOVE_DUPLICATES gathered)
  set(${definitions} ${gathered} PARENT_SCOPE)
  foreach(list IN ITEMS etude_wheel_objects etude_wheel_libraries)
    list(REMOVE_DUPLICATES ${list})
    set(${list} ${${list}} PARENT_SCOPE)
  endforeach()
endfunction()

set(etude_wheel_definitions "")
foreach(component IN LISTS etude_wheel_components)
  if(NOT TARGET etude::${component})
    list(REMOVE_ITEM etude_wheel_components ${component})
    continue()
  endif()
  etude_wheel_gather(definitions etude::${component})
  list(JOIN definitions " " definitions)
  string(APPEND etude_wheel_definitions "set(etude_definitions_of_${component} ${definitions})\n")
endforeach()

# LibTorch's targets would also link libtorch_cuda.so, if there is one, and the wheel would then need a GPU's libraries. Instead
# libtorch.so is linked, although no symbol of it is used, since it loads libtorch_cuda.so where that is installed.
set(etude_wheel_torch -Wl,--push-state,--no-as-needed ${TORCH_INSTALL_PREFIX}/lib/libtorch.so ${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so
    ${TORCH_INSTALL_PREFIX}/lib/libc10.so -Wl,--pop-state)
set(etude_wheel_folder ${PROJECT_BINARY_DIR}/wheel)

list(TRANSFORM etude_wheel_objects REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(etude_shared SHARED EXCLUDE_FROM_ALL ${objects})
target_link_libraries(etude_shared PRIVATE -Wl,--push-state,--as-needed ${etude_wheel_libraries} -Wl,--pop-state ${etude_wheel_torch} Threads::Threads)
target_link_options(etude_shared PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(etude_shared PROPERTIES OUTPUT_NAME etude LIBRARY_OUTPUT_DIRECTORY ${etude_wheel_folder}/lib INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")

add_executable(etude_program EXCLUDE_FROM_ALL $<TARGET_OBJECTS:etude_tool>)
# libtorch_cuda.so needs libraries that may be missing where the wheel is built.
target_link_libraries(etude_program PRIVATE etude_shared -Wl,--push-state,--as-needed ${etude_wheel_libraries} -Wl,--pop-state ${etude_wheel_torch}
                      -Wl,--allow-shlib-undefined)
set_target_properties(etude_program PROPERTIES OUTPUT_NAME etude RUNTIME_OUTPUT_DIRECTORY ${etude_wheel_folder}/bin
                      INSTALL_RPATH "$ORIGIN/../lib;$ORIGIN/../../torch/lib")

# The C interface, which uses libetude.so.
add_library(etude_c_shared SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:etude_c_calls>)
target_link_libraries(etude_c_shared PRIVATE etude_shared -Wl,--push-state,--as-needed ${etude_wheel_libraries} -Wl,--pop-state ${etude_wheel_torch})
target_link_options(etude_c_shared PRIVATE $<TARGET_PROPERTY:etude_c,LINK_OPTIONS>)
set_target_properties(etude_c_shared PROPERTIES OUTPUT_NAME etude_c SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${etude_wheel_folder}/lib
                      INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")

foreach(target IN ITEMS etude_shared etude_c_shared etude_program)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX BUILD_WITH_INSTALL_RPATH ON)
  # DT_RPATH comes before LD_LIBRARY_PATH, which may name a folder with another LibTorch.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
endforeach()
add_custom_target(etude_wheel DEPENDS etude_shared etude_c_shared etude_program $<TARGET_NAME_IF_EXISTS:etude_fortran>)

install(TARGETS etude_shared LIBRARY DESTINATION lib COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS etude_program RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
install(FILES tools/export.py tools/compile_graph.py tools/prepare.py tools/optimizer_state.py tools/optuna_driver.py DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL)
install(DIRECTORY include/etude DESTINATION include COMPONENT wheel EXCLUDE_FROM_ALL)
# A wheel can't contain symbolic links such as libetude_c.so. Programs in C don't see the headers below.
etude_install_c(wheel etude_c_shared lib include/c NAMELINK_SKIP EXCLUDE_FROM_ALL)

# Headers of other libraries that Etude's headers include. fmt's come from LibTorch, if it has them.
set(etude_wheel_headers boost/hana.hpp boost/hana boost/version.hpp nlohmann xxhash.h protozero zip.h zipconf.h png.h pngconf.h pnglibconf.h csv.h)
if(NOT EXISTS ${TORCH_INSTALL_PREFIX}/include/fmt)
  list(APPEND etude_wheel_headers fmt)
endif()
set(etude_wheel_sources "")
foreach(header IN LISTS etude_wheel_headers)
  find_file(found ${header} PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE REQUIRED)
  list(APPEND etude_wheel_sources ${found})
  cmake_path(GET header PARENT_PATH folder)
  if(IS_DIRECTORY ${found})
    install(DIRECTORY ${found} DESTINATION include/${folder} COMPONENT wheel EXCLUDE_FROM_ALL)
  else()
    # Debian's png.h is a link, which a wheel can't have.
    cmake_path(GET header FILENAME name)
    file(REAL_PATH ${found} found)
    install(FILES ${found} DESTINATION include/${folder} RENAME ${name} COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
  unset(found)
endforeach()

set(ETUDE_WHEEL_TORCH "${Torch_VERSION}" CACHE STRING "The version of torch that the wheel requires, as Python says it")
file(CONFIGURE OUTPUT wheel/_build.py CONTENT "VERSION = \"@PROJECT_VERSION@\"\nTORCH = \"@ETUDE_WHEEL_TORCH@\"\n" @ONLY)
install(FILES ${etude_wheel_folder}/_build.py DESTINATION . COMPONENT wheel EXCLUDE_FROM_ALL)

configure_file(cmake/etude-wheel-config.cmake.in wheel/etude-config.cmake @ONLY)
install(FILES ${etude_wheel_folder}/etude-config.cmake cmake/etude-torch.cmake cmake/etude-build-type.cmake ${PROJECT_BINARY_DIR}/etude-config-version.cmake
        DESTINATION share/cmake/etude COMPONENT wheel EXCLUDE_FROM_ALL)

# Installs the system libraries that the wheel's files need, the bill of materials, and the licences of all copied files.
configure_file(cmake/etude-wheel-bundle.cmake.in wheel/bundle.cmake @ONLY)
install(SCRIPT ${etude_wheel_folder}/bundle.cmake COMPONENT wheel EXCLUDE_FROM_ALL)
