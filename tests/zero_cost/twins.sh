#!/bin/sh
# twins.sh OBJECT COMPILER FLAG...: compiles twins.cpp with release flags and compares the instructions of its pairs.
set -eu
here=$(dirname "$0")
object=$1
shift
"$@" -O2 -DNDEBUG -c "$here/twins.cpp" -o "$object"
objdump -dr --no-show-raw-insn "$object" | awk -f "$here/twins.awk"
