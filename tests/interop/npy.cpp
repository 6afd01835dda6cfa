#include "etude/formats/npy.hpp"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

#include "etude/data/tensors.hpp"

// The C++ half of npy_files.py: loads a file and saves it again, or prints the error.
int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} FROM TO\n", argv[0]);
    return 2;
  }
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(argv[1])) {
    const auto name = entry.path().filename();
    try {
      const auto tensor = etude::load_npy(entry.path());
      etude::save_npy(fs::path(argv[2]) / name, tensor);
      fmt::print("{}\t{}\n", name.string(), etude::describe(tensor));
    } catch (const std::exception& error) {
      fmt::print("{}\t{}\n", name.string(), error.what());
    }
  }
}
