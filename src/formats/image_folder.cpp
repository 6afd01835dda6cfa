#include "etude/formats/image_folder.hpp"

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/formats/image.hpp"
#include "etude/io/checksum.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

namespace fs = std::filesystem;

struct ImageFolder::Listing {
  struct File {
    std::string name;  // relative to the root
    std::int64_t label = 0;
  };

  fs::path root;
  std::vector<std::string> classes;
  std::vector<File> files;
};

namespace detail {

namespace {

constexpr auto image_endings = std::to_array<std::string_view>({".png", ".jpg", ".jpeg"});
/// torchvision's ImageFolder also reads files with these endings, so leaving them out silently would lose
/// examples.
constexpr auto other_image_endings =
    std::to_array<std::string_view>({".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"});

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

struct FoundFile {
  std::string folder, name;  // the folder is relative to the class's folder
  auto operator<=>(const FoundFile&) const = default;
};

void find_images(const fs::path& folder, const std::string& below_class, std::vector<fs::path>& around,
                 std::vector<FoundFile>& found) {
  const auto real = fs::canonical(folder);
  if (std::ranges::find(around, real) != around.end())
    throw DataError(fmt::format("{} is a link to a folder that contains it", folder.string()));
  around.push_back(real);
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    const auto small = lower_case(name);
    std::error_code unknown;
    if (entry.is_directory(unknown))
      find_images(entry.path(), below_class + name + '/', around, found);
    else if (ends_with_any(small, image_endings))
      found.push_back({below_class, name});
    else if (ends_with_any(small, other_image_endings))
      throw DataError(fmt::format("{} can't be read: must be a PNG or JPEG file", entry.path().string()));
  }
  around.pop_back();
}

std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  if (names.empty())
    throw DataError(fmt::format("{} has no folders: must have one for each class", root.string()));
  return names;
}

void check_image_options(const ImageFolderOptions& options) {
  check_fields(options);
  if (options.channels == 2) throw ArgumentError("channels is 2: must be 1 or 3");
  const auto check_numbers = [&](const char* name, const std::vector<double>& numbers, double least) {
    if (!numbers.empty() && std::ssize(numbers) != options.channels)
      throw ArgumentError(fmt::format("{} has {} numbers: must be one for each channel, {}, or none", name,
                                      numbers.size(), options.channels));
    for (const double number : numbers)
      if (!std::isfinite(number) || !(number > least))
        throw ArgumentError(fmt::format("{} has {}: must be finite{}", name, number,
                                        std::isfinite(least) ? fmt::format(" and above {}", least) : ""));
  };
  check_numbers("mean", options.mean, -std::numeric_limits<double>::infinity());
  check_numbers("std", options.std, 0);
  auto sorted = options.classes;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw ArgumentError(fmt::format("classes has '{}' twice", *twice));
}

/// A rectangle of an image, in pixels.
struct ImagePart {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Rounds as Python does: half to even.
std::int64_t rounded(double number) { return static_cast<std::int64_t>(std::nearbyint(number)); }

double draw_uniform(double low, double high, at::Generator& generator) {
  return at::empty({1}).uniform_(low, high, generator).item<double>();
}

/// RandomResizedCrop.get_params of torchvision, with the same draws in the same order.
ImagePart random_part(std::int64_t height, std::int64_t width, at::Generator& generator) {
  constexpr double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;
  const double low = std::log(static_cast<float>(least_ratio)),
               high = std::log(static_cast<float>(most_ratio));
  const auto area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draw_uniform(0.08, 1, generator);
    const double ratio = at::empty({1}).uniform_(low, high, generator).exp_().item<double>();
    const auto w = rounded(std::sqrt(target * ratio)), h = rounded(std::sqrt(target / ratio));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const auto top = at::randint(0, height - h + 1, {1}, generator, at::kLong).item<std::int64_t>();
    const auto left = at::randint(0, width - w + 1, {1}, generator, at::kLong).item<std::int64_t>();
    return {top, left, h, w};
  }
  // No attempt fitted: take the largest centre crop whose aspect ratio is allowed.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  auto h = height, w = width;
  if (ratio < least_ratio) h = rounded(static_cast<double>(width) / least_ratio);
  if (ratio > most_ratio) w = rounded(static_cast<double>(height) * most_ratio);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

/// Crops and resizes uint8 pixels [H, W, C] to float32 [C, height, width], still between 0 and 255.
at::Tensor resized(const at::Tensor& pixels, const ImagePart& part, std::int64_t height, std::int64_t width) {
  const auto cut = pixels.narrow(0, part.top, part.height).narrow(1, part.left, part.width);
  auto image = at::empty({1, pixels.size(2), part.height, part.width}).copy_(cut.permute({2, 0, 1}));
  if (part.height != height || part.width != width)
    image = at::_upsample_bilinear2d_aa(image, {height, width}, /*align_corners=*/false);
  return image[0];
}

/// Resizes the image so that it just covers height x width, and crops the centre.
at::Tensor covering(const at::Tensor& pixels, std::int64_t height, std::int64_t width) {
  const auto h = pixels.size(0), w = pixels.size(1);
  const bool is_high = h * width >= w * height;
  const auto new_height = is_high ? h * width / w : height, new_width = is_high ? width : w * height / h;
  if (new_height > most_pixels / new_width)
    throw DataError(
        fmt::format("it is {} x {} pixels, which is too narrow for {} x {}", w, h, width, height));
  const auto image = resized(pixels, {0, 0, h, w}, new_height, new_width);
  const auto margin = [](std::int64_t larger, std::int64_t smaller) {
    return rounded(static_cast<double>(larger - smaller) / 2);
  };
  return image.narrow(1, margin(new_height, height), height).narrow(2, margin(new_width, width), width);
}

/// float32 [channels, 1, 1].
at::Tensor per_channel(const std::vector<double>& numbers) {
  return at::tensor(numbers).to(at::kFloat).reshape({-1, 1, 1});
}

}  // namespace

}  // namespace detail

ImageFolder::ImageFolder(const fs::path& root, ImageFolderOptions options) : options_(std::move(options)) {
  detail::check_image_options(options_);
  auto listing = std::make_shared<Listing>();
  try {
    const auto folders = detail::folders_in(root);
    *listing = {.root = root, .classes = options_.classes.empty() ? folders : options_.classes, .files = {}};
    for (const auto& folder : folders) {
      const auto place = std::ranges::find(listing->classes, folder);
      if (place == listing->classes.end())
        throw DataError(fmt::format("{} isn't a class: must be one of {}", (root / folder).string(),
                                    fmt::join(listing->classes, ", ")));
      std::vector<detail::FoundFile> found;
      std::vector<fs::path> around;
      detail::find_images(root / folder, folder + '/', around, found);
      if (found.empty() && options_.classes.empty())
        throw DataError(
            fmt::format("{} has no image: must have a .png, .jpg or .jpeg", (root / folder).string()));
      std::ranges::sort(found);
      for (const auto& file : found)
        listing->files.push_back({file.folder + file.name, place - listing->classes.begin()});
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(fmt::format("{} can't be read: {}", error.path1().string(), error.code().message()));
  }
  if (listing->files.empty()) throw DataError(fmt::format("{} has no images", root.string()));
  listing_ = std::move(listing);
}

std::size_t ImageFolder::size() const { return listing_->files.size(); }

const std::vector<std::string>& ImageFolder::classes() const { return listing_->classes; }

fs::path ImageFolder::file(std::size_t index) const {
  if (index >= size())
    throw DataError(fmt::format("example {} was requested, but there are {}", index, size()));
  return listing_->root / listing_->files[index].name;
}

std::pair<at::Tensor, std::int64_t> ImageFolder::get(std::size_t index, at::Generator& generator) const {
  const auto path = file(index);
  const auto pixels =
      detail::read_pixels(path, options_.channels == 1 ? ImageChannels::grey : ImageChannels::rgb);
  at::Tensor image;
  try {
    image = options_.random_resized_crop
                ? detail::resized(pixels, detail::random_part(pixels.size(0), pixels.size(1), generator),
                                  options_.height, options_.width)
                : detail::covering(pixels, options_.height, options_.width);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
  if (options_.random_flip && at::rand({1}, generator).item<float>() < 0.5F) image = image.flip(2);
  image = image.div(255);
  if (!options_.mean.empty()) image.sub_(detail::per_channel(options_.mean));
  if (!options_.std.empty()) image.div_(detail::per_channel(options_.std));
  return {image, listing_->files[index].label};
}

std::string ImageFolder::fingerprint() const {
  constexpr std::size_t most_sizes = 8;
  Checksum sum;
  const auto add = [&](std::string_view text) {
    sum.update(std::as_bytes(std::span(text)));
    sum.update(std::as_bytes(std::span("", 1)));
  };
  for (const auto& name : classes()) add(name);
  for (const auto& file : listing_->files) add(file.name);
  const auto count = std::min(size(), most_sizes);
  for (std::size_t i = 0; i < count; ++i) {
    std::error_code missing;
    add(std::to_string(fs::file_size(file((size() - 1) * i / std::max<std::size_t>(count - 1, 1)), missing)));
  }
  return sum.hex();
}

}  // namespace etude::inline v0
