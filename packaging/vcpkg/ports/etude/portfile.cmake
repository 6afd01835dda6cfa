# Untried. SOURCE_PATH is this repository: an overlay port, `vcpkg install etude --overlay-ports=packaging/vcpkg/ports`.
cmake_path(GET CURRENT_PORT_DIR PARENT_PATH ports)
cmake_path(APPEND ports ../../.. OUTPUT_VARIABLE SOURCE_PATH)
cmake_path(NORMAL_PATH SOURCE_PATH)
set(VCPKG_BUILD_TYPE release) # headers and sources only

vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DETUDE_BUILD_TESTS=OFF -DETUDE_BUILD_EXAMPLES=OFF -DETUDE_BUILD_TOOLS=OFF)
vcpkg_cmake_install()
# Needs no vcpkg_cmake_config_fixup: Etude's config compiles the library in the program's build, and its files are next to it.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
