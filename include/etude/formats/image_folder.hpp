#pragma once

#ifndef ETUDE_IMAGES
#error "etude/formats/image_folder.hpp needs a library: link etude::images"
#endif

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/reflect/struct.hpp"

/// Needs the libraries of image.hpp and the CMake target etude::images. Not included by etude.hpp.
namespace etude::inline v0 {

/// How an ImageFolder turns its files into tensors.
struct ImageFolderOptions {
  ETUDE_STRUCT(
      ImageFolderOptions, (std::int64_t, height, "height of an example in pixels" | between(1, 65535), 224),
      (std::int64_t, width, "width of an example in pixels" | between(1, 65535), 224),
      (std::int64_t, channels, "3 for RGB, or 1 for grey" | between(1, 3), 3),
      (std::vector<double>, mean,
       "subtracted from the pixels, which are between 0 and 1: one number for each channel; 0 if empty"),
      (std::vector<double>, std, "divides the result: one number for each channel; 1 if empty"),
      (bool, random_resized_crop,
       "cut a random part out of each image, of 8 to 100 % of its area and a ratio of 3/4 to 4/3", false),
      (bool, random_flip, "mirror half of the images at random", false),
      (std::vector<std::string>, classes,
       "the classes in the order of their labels; if empty, the folders in alphabetical order"));
};

/// The PNG and JPEG files of a folder that has a subfolder for each class, like torchvision's ImageFolder.
/// Classes are in alphabetical order; within a class, files are found recursively and sorted by folder, then
/// by name. Files whose names don't end in .png, .jpg or .jpeg, in lower or upper case, are ignored, except
/// images that only torchvision can read, such as .bmp: they throw DataError.
///
/// An image is resized so that it just covers height x width, and its centre is cut out: torchvision's Resize
/// and CenterCrop. With `random_resized_crop`, torchvision's RandomResizedCrop cuts and resizes instead, and
/// with `random_flip`, RandomHorizontalFlip follows; a generator with the same seed gives the same crops as
/// in torchvision. Interpolation is bilinear, with antialiasing.
class ImageFolder {
 public:
  /// Lists the files without opening them. Throws ArgumentError for options out of range; DataError for a
  /// folder that can't be read or has no subfolders, and for a subfolder without images or not among
  /// `classes`.
  explicit ImageFolder(const std::filesystem::path& root, ImageFolderOptions options = {});

  std::size_t size() const;

  /// Returns the image, float32 [channels, height, width], and its class. Several threads may call it at
  /// once. Throws DataError for an index out of range, and for a file that can't be decoded, with its path.
  std::pair<at::Tensor, std::int64_t> get(std::size_t index, at::Generator& generator) const;

  /// The names of the classes, in the order of their labels.
  const std::vector<std::string>& classes() const;

  /// The path of an example. Throws DataError for an index out of range.
  std::filesystem::path file(std::size_t index) const;

  /// A checksum of the classes, the names of all files and the sizes of a few. Decodes no file.
  std::string fingerprint() const;

 private:
  struct Listing;

  std::shared_ptr<const Listing> listing_;
  ImageFolderOptions options_;
};

}  // namespace etude::inline v0
