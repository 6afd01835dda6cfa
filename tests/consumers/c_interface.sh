#!/bin/sh
# c_interface.sh FOLDER BUILD MODEL: installs the C interface from a build folder that has compiled it, without its sources' other needs, and
# builds programs in C and Fortran that find it by CMake and by pkg-config. CC and FC name the compilers; without FC there is no Fortran.
set -eu
here=$(cd "$(dirname "$0")" && pwd)/c_interface
build=$2
model=$3
rm -rf "$1"
mkdir -p "$1"
cd "$1"
fail() {
  printf '%s\n' "$@"
  exit 1
}
# expect LINE COMMAND...: the command succeeds and prints the line.
expect() {
  line=$1
  shift
  OMP_NUM_THREADS=1 "$@" >output 2>&1 && grep -qx "$line" output || fail "$*: expected '$line' in:" "$(cat output)"
  rm -rf trainer_output
}

cmake --install "$build" --component c --prefix "$PWD/moved" >/dev/null
# The files name each other by relative paths.
mv moved installed
prefix=$PWD/installed
exported=$(nm -D --defined-only "$prefix"/lib/libetude_c.so* | awk '$2 == "T" { sub("@.*", "", $3); print $3 }' | sort -u)
[ -z "$(echo "$exported" | grep -v '^etude_')" ] || fail "libetude_c.so should export only etude_*, exports:" "$exported"

# configure ARGUMENT...
configure() {
  rm -rf project
  cmake -S "$here" -B project --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON "$@" >output 2>&1
}
configure || fail "$(cat output)"
cmake --build project >output 2>&1 || fail "$(cat output)"
expect 'fitted in C' project/in_c "$model"

# refuses COMPONENT EXPECTED: a project in C can't find that component, and the error says why.
refuses() {
  ! configure -DCOMPONENTS="c;$1" || fail "the component $1 should not have been found"
  tr -s ' \n' ' ' <output | grep -qF "$2" || fail "expected '$2' in:" "$(cat output)"
}
refuses fortran "The component 'fortran' needs the language Fortran: project(... LANGUAGES Fortran)"
refuses etude "Only the components c and fortran are installed: "

export PKG_CONFIG_PATH="$prefix/share/pkgconfig"
cc=${CC:-cc}
# shellcheck disable=SC2046
$cc -std=c99 -Wall -Werror "$here/program.c" $(pkg-config --cflags --libs etude-c) -o in_c
expect 'fitted in C' ./in_c "$model"

[ -n "${FC:-}" ] || exit 0
configure -DWITH_FORTRAN=ON -DCMAKE_Fortran_COMPILER="$FC" || fail "$(cat output)"
cmake --build project >output 2>&1 || fail "$(cat output)"
expect 'fitted in Fortran' project/in_fortran "$model"
# With the installed module file, and with the module's source.
# shellcheck disable=SC2046
"$FC" "$here/program.f90" $(pkg-config --cflags --libs etude-fortran) -o in_fortran
expect 'fitted in Fortran' ./in_fortran "$model"
# shellcheck disable=SC2046
"$FC" $(pkg-config --variable=fortran_sources etude-c) "$here/program.f90" $(pkg-config --libs etude-c) -o from_source
expect 'fitted in Fortran' ./from_source "$model"
