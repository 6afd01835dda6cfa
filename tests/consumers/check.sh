#!/bin/sh
# check.sh FOLDER WAYS CMAKE_ARGUMENT...: configures, builds and runs the projects next to this file from scratch, in FOLDER. With SMALL set,
# each builds a program without a trainer, in seconds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$1/etude" "$1/installed"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
export CCACHE_BASEDIR="$folder"
ways=$2
shift 2

# run PROGRAM EXPECTED
run() {
  mkdir -p "$folder/run/$way/$1"
  cd "$folder/run/$way/$1"
  if ! OMP_NUM_THREADS=1 "$folder/$way/$1" >output 2>&1 || ! grep "$2" output; then
    tail -n 20 output
    echo "$way: $1 should have succeeded and printed '$2'"
    exit 1
  fi
}

for way in $ways; do
  echo "$way"
  rm -rf "${folder:?}/$way" "$folder/run/$way"
  if [ "$way" = find_package ]; then
    cmake -S "$here/../.." -B "$folder/etude" --log-level=WARNING -DETUDE_BUILD_TESTS=OFF -DETUDE_BUILD_EXAMPLES=OFF "$@"
    cmake --install "$folder/etude" --prefix "$folder/installed" >/dev/null
  fi
  cmake -S "$here/$way" -B "$folder/$way" --log-level=WARNING -DCMAKE_PREFIX_PATH="$folder/installed" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
        -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" "$@"
  # The program with trackers takes minutes to compile, and is the same whichever way it finds Etude, so only one way builds it.
  if [ -n "${SMALL:-}" ]; then
    cmake --build "$folder/$way" --target small
    run small '2 + 2 = 4'
  elif [ "$way" = find_package ]; then
    cmake --build "$folder/$way" --parallel "$(nproc)" --target tracked
    run tracked train_loss
    ls trainer_output/runs/*/events.out.tfevents.*
  else
    cmake --build "$folder/$way" --parallel "$(nproc)" --target program
    run program '1500 steps, accuracy 0.9'
  fi
done
