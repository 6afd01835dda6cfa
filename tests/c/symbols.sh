#!/bin/sh
# symbols.sh READELF LIBRARY HEADER VERSION_1: the library exports the functions of the header and nothing else, under their versions;
# those of version 1 are still there, and later functions have a later version, without which a program that needs them would start with an
# older library and fail at the call.
set -eu
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
"$1" --dyn-syms --wide "$2" | awk '$7 ~ /^[0-9]+$/ && $5 != "LOCAL" { print $4, $8 }' | sed 's/@@/@/' >"$found/defined"
sed -n 's/^FUNC //p' "$found/defined" | LC_ALL=C sort >"$found/exported"
grep -v '^FUNC ' "$found/defined" >"$found/others" || true
grep -o 'etude_[a-z_]*(' "$3" | tr -d '(' | LC_ALL=C sort -u >"$found/declared"
sed 's/@.*//' "$found/exported" | diff "$found/declared" -
LC_ALL=C comm -23 "$4/symbols.txt" "$found/exported" | sed 's/^/missing: /' >"$found/missing"
grep '@ETUDE_1$' "$found/exported" | LC_ALL=C comm -13 "$4/symbols.txt" - | sed 's/^/not of version 1: /' >>"$found/missing"
cat "$found/others" "$found/missing"
[ ! -s "$found/others" ] && [ ! -s "$found/missing" ]
