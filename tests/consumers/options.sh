#!/bin/sh
# options.sh FOLDER COMPILER...: a program links with a library compiled with the same options. With different options it doesn't,
# and the linker's error names the option that differs.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
cd "$1"
shift
printf '#include "etude/base/linkage.hpp"\nint main() {}\n' >program.cpp

# try LIBRARY_OPTION PROGRAM_OPTION: compiles both and links them.
try() {
  "$compiler" -std=c++20 -O2 -I"$root/include" "$1" -c "$root/src/base/linkage.cpp" -o library.o
  "$compiler" -std=c++20 -O2 -I"$root/include" "$2" -c program.cpp -o program.o
  "$compiler" program.o library.o -o program >output 2>&1
}
links() {
  try "$1" "$2" || { cat output && echo "$compiler: a program with $2 should link with a library with $1" && exit 1; }
}
fails() {
  if try "$1" "$2" || ! grep -E "etude::(v[0-9]+::)?library_compiled::$3::as_this_file_is" output; then
    cat output
    echo "$compiler: a program with $2 linked with a library with $1 should fail with $3"
    exit 1
  fi
}

for compiler in "$@"; do
  links -DNDEBUG -UNDEBUG
  links -D_GLIBCXX_ASSERTIONS -UNDEBUG
  links -D_GLIBCXX_DEBUG -D_GLIBCXX_DEBUG
  fails -UNDEBUG -D_GLIBCXX_DEBUG with_GLIBCXX_DEBUG::with_GLIBCXX_USE_CXX11_ABI_1
  fails -D_GLIBCXX_DEBUG -UNDEBUG without_GLIBCXX_DEBUG::with_GLIBCXX_USE_CXX11_ABI_1
  fails -UNDEBUG -D_GLIBCXX_USE_CXX11_ABI=0 without_GLIBCXX_DEBUG::with_GLIBCXX_USE_CXX11_ABI_0
done
