#!/bin/sh
# check.sh CASE COMPILER FLAG...
# With -DETUDE_MISTAKE, the case must not compile. The first line with an error must match the case's line
# "// EXPECT: <extended regular expression>" ("// EXPECT-CLANG:" if Clang's error differs), without the namespace of this version.
# Without the mistake, the case must compile. Only a case with the line "// ALONE: <reason>" is compiled here; the others are compiled
# together, in correct_core.cpp and correct_torch.cpp.
set -u
case=$1
shift
expect=EXPECT
if "$1" --version | grep -q clang && grep -q '^// EXPECT-CLANG: ' "$case"; then expect=EXPECT-CLANG; fi
expected=$(sed -n "s|^// $expect: ||p" "$case")
if [ -z "$expected" ]; then
  echo "$case: no line says '// EXPECT: <regular expression>'"
  exit 1
fi
if sed -n "/^\/\/ $expect: /{n;p;}" "$case" | grep -q '^// [^A-Z]'; then
  echo "$case: its $expect goes on in the next line, which is not looked at: shorten it"
  exit 1
fi
if grep -q '^// ALONE: ' "$case" && ! output=$("$@" -fsyntax-only -Werror "$case" 2>&1); then
  printf '%s\nWithout the mistake it must compile.\n' "$output"
  exit 1
fi
# After the first error, the compiler would spend seconds on LibTorch's templates.
if output=$("$@" -fsyntax-only -Wfatal-errors -DETUDE_MISTAKE "$case" 2>&1); then
  echo "With the mistake it must not compile."
  exit 1
fi
first=$(printf '%s\n' "$output" | grep -m 1 'error:' | sed 's/etude::v[0-9]*::/etude::/g')
printf '%s\n' "$first"
if ! printf '%s\n' "$first" | grep -Eq -e "$expected"; then
  printf 'expected: %s\nThe whole output:\n%s\n' "$expected" "$output"
  exit 1
fi
