#!/bin/sh
# count.sh PROGRAM LIBRARY COMPILER FLAG...: compiles count.cpp with release flags and counts, under valgrind, the instructions of
# 100000 events through the handler and of the same work by hand.
set -eu
here=$(dirname "$0")
program=$1
library=$2
shift 2
allowed=1000 # of the whole run: a hundredth of an instruction per event

"$@" -O2 -DNDEBUG "$here/count.cpp" "$library" -o "$program"
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" 2>&1 | sed -n 's/.*Collected : *\([0-9][0-9]*\).*/\1/p'
}
etude=$(instructions etude)
plain=$(instructions plain)
echo "through the handler: $etude instructions; by hand: $plain"
[ "$plain" -gt 1000000 ]
[ $((etude - plain)) -le "$allowed" ]
