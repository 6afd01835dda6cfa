#!/bin/sh
# package.sh FOLDER CMAKE_ARGUMENT...: makes the Debian package, unpacks it, and builds and runs programs that find it by CMake's components
# and by pkg-config.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
rm -rf "$1"
mkdir -p "$1"
cd "$1"
shift
export CCACHE_BASEDIR="$PWD"
ccache=$(command -v ccache || true)
fail() {
  printf '%s\n' "$@"
  exit 1
}

cmake -S "$root" -B etude --log-level=WARNING -DETUDE_BUILD_TESTS=OFF -DETUDE_BUILD_EXAMPLES=OFF -DETUDE_BUILD_TOOLS=OFF "$@"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' etude/CMakeCache.txt)
grep -q "\"version\": \"$version\"" "$root/packaging/vcpkg/ports/etude/vcpkg.json" || fail "packaging/vcpkg/ports/etude/vcpkg.json should have version $version"
grep -q "^## $version" "$root/CHANGELOG.md" || fail "CHANGELOG.md should have a section '## $version'"

(cd etude && cpack -G DEB >/dev/null)
package=etude/libetude-dev_${version}_all.deb
dpkg-deb --field "$package" Depends | grep -q libboost-dev || fail "the package should depend on libboost-dev"
dpkg-deb --extract "$package" installed
installed=$PWD/installed/usr
! grep -rIl "$root" installed || fail "the package should have no path of the source"

grep -q '"name": "LibTorch"' "$installed/share/doc/etude/etude.spdx.json" || fail "the bill of materials should name LibTorch"

# A program that needs no LibTorch, and finds none.
cat >core.cpp <<'PROGRAM'
#include <cstdio>
#include <etude/callback.hpp>
#include <etude/dispatch/callback_handler.hpp>

struct Tick { int number; };
struct Print {
  void on(const Tick& e) { std::printf("tick %d\n", e.number); }
};

int main() {
  etude::CallbackHandler handler(Print{});
  handler.call_event(Tick{7});
}
PROGRAM
# project COMPONENTS: makes a project that finds them.
project() {
  rm -rf project
  mkdir project
  cp core.cpp project
  cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(etude ${version%.*} REQUIRED $1)
add_executable(core core.cpp)
target_link_libraries(core PRIVATE etude::core)
CMAKE
}
configure() {
  cmake -S project -B project/build -DCMAKE_BUILD_TYPE=Debug -DCMAKE_PREFIX_PATH="$installed" -DCMAKE_CXX_COMPILER_LAUNCHER="$ccache" "$@" >output 2>&1
}
# fails COMPONENTS EXPECTED CMAKE_ARGUMENT...
fails() {
  project "$1"
  expected=$2
  shift 2
  ! configure "$@" || fail "find_package should have failed: $expected"
  tr -s ' \n' ' ' <output | grep -qF "$expected" || fail "expected '$expected' in:" "$(cat output)"
}

project 'COMPONENTS core study'
configure -DTorch_DIR=/nowhere || fail "the components core and study should need no LibTorch:" "$(cat output)"
cmake --build project/build >output 2>&1 || fail "$(cat output)"
project/build/core | grep -x 'tick 7'
fails 'COMPONENTS core tensorbord' "There is no component 'tensorbord'; must be one of core, pages, study, tensors, etude" "$@"
fails 'COMPONENTS png' "needs libpng (Debian: libpng-dev)" -DCMAKE_DISABLE_FIND_PACKAGE_PNG=ON "$@"
fails 'COMPONENTS images' "needs libpng and libjpeg-turbo (Debian: libpng-dev, libjpeg-dev)" -DCMAKE_DISABLE_FIND_PACKAGE_JPEG=ON "$@"
fails 'COMPONENTS mlflow' "ETUDE_MLFLOW needs CURL: install it (Debian: libcurl4-openssl-dev)" -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON "$@"
fails 'COMPONENTS etude' "which has no TorchConfig.cmake" "$@" -DTorch_DIR=/nowhere
project 'COMPONENTS etude OPTIONAL_COMPONENTS mlflow'
configure -DCMAKE_DISABLE_FIND_PACKAGE_CURL=ON "$@" || fail "an optional component should not be needed:" "$(cat output)"

export PKG_CONFIG_PATH="$installed/share/pkgconfig"
compiler=${CXX:-c++}
# build PACKAGE SOURCE: compiles the library's source and a program's, and links them.
build() {
  for source in "$(pkg-config --variable=source "$1")" "$2"; do
    # shellcheck disable=SC2046
    $ccache $compiler -c "$source" $(pkg-config --cflags "$1")
  done
  name=$(basename "$2" .cpp)
  # shellcheck disable=SC2046
  $compiler "$name.o" "$1.o" -o "$name" $(pkg-config --libs "$1")
}
build etude-core core.cpp
./core | grep -x 'tick 7'
build etude "$root/packaging/conan/test_package/program.cpp"
./program
