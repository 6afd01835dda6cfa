#!/bin/sh
# torches.sh FOLDER: checks CMake's result and messages for every kind of LibTorch, with empty libraries in FOLDER.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$1"
mkdir -p "$1"
cd "$1"
folder=$PWD
compiler=${CXX:-c++}
unset Torch_DIR Torch_ROOT CMAKE_PREFIX_PATH CMAKE_BUILD_TYPE CXXFLAGS
failed=0

# torch FOLDER VERSION FLAGS: creates the CMake files of a LibTorch built for CUDA.
torch() {
  mkdir -p "$1/lib" "$1/include/torch/csrc/api/include" "$1/share/cmake/Torch" "$1/share/cmake/Caffe2"
  echo "set(PACKAGE_VERSION $2)" >"$1/share/cmake/Torch/TorchConfigVersion.cmake"
  printf 'set(TORCH_CXX_FLAGS "%s")\nmessage(FATAL_ERROR "this asks for the toolkit")\n' "$3" >"$1/share/cmake/Torch/TorchConfig.cmake"
  echo '  set(CAFFE2_USE_CUDA 1)' >"$1/share/cmake/Caffe2/Caffe2Config.cmake"
  cat >"$1/share/cmake/Caffe2/Caffe2Targets.cmake" <<'EOF'
set_target_properties(torch_cpu PROPERTIES
  INTERFACE_COMPILE_DEFINITIONS "USE_RPC;USE_DISTRIBUTED"
EOF
}

# library FOLDER NAME LIBRARY...: creates a library that needs the others, and finds them where a wheel's are.
library() {
  place=$1 name=$2
  shift 2
  echo "int in_$(echo "$name" | tr . _)() { return 1; }" >one.cpp
  "$compiler" -shared -fPIC -Wl,--no-as-needed -Wl,-soname,"$name" '-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN' -o "$place/$name" one.cpp "$@"
}

# configure WHAT EXPECTED CMAKE_ARGUMENT...: checks that the output matches the regular expression, across lines.
configure() {
  what=$1 expected=$2
  shift 2
  rm -rf build
  cmake -B build "$@" 2>&1 | tr -s ' \n' ' ' >output || true
  if ! grep -Eq "$expected" output; then
    printf '%s: expected "%s" in:\n%s\n' "$what" "$expected" "$(cat output)"
    failed=1
  fi
}

# links COUNT LIBRARY: checks that the last configured project builds and runs, and needs the library (or not, if COUNT is 0).
links() {
  if ! cmake --build build >output 2>&1 || ! build/program; then
    cat output
    failed=1
  elif [ "$(readelf -d build/program | grep -c "NEEDED.*$2")" -ne "$1" ]; then
    echo "$2 should be listed $1 times as NEEDED"
    failed=1
  fi
}

site=$folder/site-packages
packages=$site/nvidia/cu13/lib
mkdir -p "$packages"
torch "$site/torch" 2.15.0 ''
torch old_abi 2.6.0 -D_GLIBCXX_USE_CXX11_ABI=0
torch too_old 1.12.1 ''
library "$packages" libcudart.so.99
library "$packages" libcublas.so.99
lib=$site/torch/lib
library "$lib" libc10.so
library "$lib" libtorch_cpu.so "$lib/libc10.so" "$packages/libcudart.so.99"
library "$lib" libc10_cuda.so "$lib/libc10.so" "$packages/libcudart.so.99"
library "$lib" libtorch_cuda.so "$lib/libtorch_cpu.so" "$lib/libc10_cuda.so" "$packages/libcublas.so.99"

mkdir project
cat >project/CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(fmt REQUIRED)
add_subdirectory($here/../.. etude)
add_executable(program main.cpp)
target_link_libraries(program PRIVATE torch)
EOF
cat >project/main.cpp <<'EOF'
int in_libtorch_cpu_so();
#if !defined(USE_RPC) || !defined(USE_DISTRIBUTED)
#error "the definitions of LibTorch's build are missing"
#endif
int main() { return in_libtorch_cpu_so() - 1; }
EOF
release=-DCMAKE_BUILD_TYPE=Release
wheel=-DTorch_DIR=$site/torch/share/cmake/Torch

configure 'no LibTorch' 'Error.* LibTorch not found\. Name one with -DTorch_DIR=.* pip install torch' -S project $release -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
configure 'a wrong Torch_DIR' 'Error.* Torch_DIR is /nowhere, which has no TorchConfig.cmake\. Name one' -S project $release -DTorch_DIR=/nowhere
configure 'the old ABI' 'Error.*/old_abi/.* uses the old C\+\+ ABI .*\. Name one' -S project $release -DTorch_DIR="$folder/old_abi/share/cmake/Torch"
configure 'an old LibTorch' 'Error.*/too_old/.* is 1.12.1; Etude needs 1.13' -S project $release -DTorch_DIR="$folder/too_old/share/cmake/Torch"
configure 'no build type' 'Warning.* CMAKE_BUILD_TYPE is not set, .*-DCMAKE_BUILD_TYPE=Release.*LibTorch 2.15.0.*Generating done' -S project "$wheel"
configure 'a build type' 'LibTorch 2.15.0.*Generating done' -S project "$wheel" $release
if grep Warning output; then failed=1; fi
links 1 libtorch_cuda.so

# The active Python's LibTorch is the default.
mkdir bin
printf '#!/bin/sh\necho "%s"\n' "$site/torch" >bin/python3
chmod +x bin/python3
PATH=$folder/bin:$PATH configure "Python's" "Etude: LibTorch 2.15.0 in $site/torch .*Generating done" -S project $release
printf '#!/bin/sh\necho "%s"\n' "$folder/old_abi" >bin/python3
PATH=$folder/bin:$PATH configure "Python's, with the old ABI" "Etude: skipping the LibTorch of $folder/bin/python3" -S project $release

cmake -S "$here/../.." -B etude $release "$wheel" -DETUDE_BUILD_TESTS=OFF -DETUDE_BUILD_EXAMPLES=OFF >output 2>&1 || cat output
cmake --install etude --prefix installed >/dev/null
sed -i 's|^add_subdirectory.*|find_package(etude REQUIRED)|' project/CMakeLists.txt
configure 'installed, no LibTorch' 'Error.*etude_FOUND to FALSE.*LibTorch not found' -S project $release -DCMAKE_PREFIX_PATH="$folder/installed" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON
configure 'installed, no build type' 'Warning.* CMAKE_BUILD_TYPE is not set, .*Generating done' -S project -DCMAKE_PREFIX_PATH="$folder/installed" "$wheel"
links 1 libtorch_cuda.so

# Without a package that only the GPU needs, then without one that the CPU needs too.
rm "$packages/libcublas.so.99"
configure 'the CPU only' 'LibTorch is used on the CPU only; on a GPU it needs libcublas.so.99 .*Generating done' -S project $release -DCMAKE_PREFIX_PATH="$folder/installed" "$wheel"
links 0 libtorch_cuda.so
rm "$packages/libcudart.so.99"
configure 'too little' 'Error.*FALSE.*needs libcudart.so.99: install what its wheel requires' -S project $release -DCMAKE_PREFIX_PATH="$folder/installed" "$wheel"

exit $failed
