#include <fmt/format.h>

#include <exception>
#include <filesystem>

#include "etude/formats/image.hpp"
#include "etude/formats/npy.hpp"

// The C++ half of images.py: saves the pixels of each image as RGB and as grey.
int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} FROM TO\n", argv[0]);
    return 2;
  }
  namespace fs = std::filesystem;
  try {
    for (const auto& entry : fs::directory_iterator(argv[1])) {
      const auto name = entry.path().filename().string();
      etude::save_npy(fs::path(argv[2]) / (name + ".RGB.npy"), etude::read_image(entry.path()));
      etude::save_npy(fs::path(argv[2]) / (name + ".L.npy"),
                      etude::read_image(entry.path(), etude::ImageChannels::grey));
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
