#include "etude/formats/image_folder.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/formats/png.hpp"

namespace formats_image_folder_test {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// Writes an image with the values (20 x + 7 y + 31 channel) % 256.
void write_image(const fs::path& path, std::int64_t height, std::int64_t width) {
  fs::create_directories(path.parent_path());
  const auto y = torch::arange(height).view({-1, 1, 1}), x = torch::arange(width).view({1, -1, 1});
  const auto pixels = (x * 20 + y * 7 + torch::arange(3) * 31).remainder(256).to(torch::kByte);
  toy::write_text(path, etude::png_file(pixels.contiguous()));
}

at::Generator generator(std::uint64_t seed) { return at::detail::createCPUGenerator(seed); }

torch::Tensor image_of(const etude::ImageFolder& images, std::uint64_t seed = 0) {
  auto random = generator(seed);
  return images.get(0, random).first;
}

void check_green(const torch::Tensor& image, const std::vector<float>& expected) {
  REQUIRE(image[1].numel() == static_cast<std::int64_t>(expected.size()));
  CHECK(torch::allclose(image[1].flatten(), torch::tensor(expected), 0, 2e-5));
}

std::string fault_of(const fs::path& root, etude::ImageFolderOptions options = {}) {
  return toy::fault_of<etude::DataError>([&] { etude::ImageFolder(root, std::move(options)); });
}

TEST_CASE("classes are the folders in alphabetical order, and files are found in all their folders") {
  const toy::Folder folder;
  for (const char* name :
       {"b/2.PNG", "b/1.jpeg", "b/more/0.JPG", "b/more-/0.jpg", "a/x.png", "c/deep/er/y.png"}) {
    fs::create_directories((folder / name).parent_path());
    toy::write_text(folder / name, "");
  }
  toy::write_text(folder / "b/notes.txt", "");
  toy::write_text(folder / "stray.png", "");
  const etude::ImageFolder images(folder / "");
  CHECK(images.classes() == Names{"a", "b", "c"});
  Names names;
  for (std::size_t i = 0; i < images.size(); ++i)
    names.push_back(images.file(i).lexically_relative(folder / "").string());
  // Sorted by folder, then by name, like Python's os.walk and sorted().
  CHECK(names == Names{"a/x.png", "b/1.jpeg", "b/2.PNG", "b/more-/0.jpg", "b/more/0.JPG", "c/deep/er/y.png"});
}

TEST_CASE("an image is resized until it covers the size, and its centre is cut out, as torchvision does") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 10, 12);
  // Resize(4, antialias=True) and CenterCrop(4) of torchvision 0.28.
  check_green(image_of(etude::ImageFolder(folder / "", {.height = 4, .width = 4})),
              {0.24706F, 0.46275F, 0.69804F, 0.74260F, 0.30855F, 0.52424F, 0.75953F, 0.57365F, 0.37773F,
               0.59341F, 0.80193F, 0.35671F, 0.43922F, 0.65490F, 0.78372F, 0.23886F});
}

TEST_CASE("an image that has the size already isn't changed, but for mean and std") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 2, 3);
  const auto bytes = torch::tensor({0, 20, 40, 7, 27, 47}).view({2, 3});
  const auto image = image_of(etude::ImageFolder(
      folder / "", {.height = 2, .width = 3, .mean = {0.5, 0.25, 0}, .std = {0.5, 0.25, 2}}));
  CHECK((image.scalar_type() == torch::kFloat));
  CHECK(torch::equal(image[0], (bytes / 255. - 0.5) / 0.5));
  CHECK(torch::equal(image[1], ((bytes + 31) / 255. - 0.25) / 0.25));
  CHECK(torch::equal(image[2], (bytes + 62) / 255. / 2));

  const auto grey = image_of(etude::ImageFolder(folder / "", {.height = 2, .width = 3, .channels = 1}));
  CHECK(grey.sizes() == torch::IntArrayRef({1, 2, 3}));
  CHECK(grey[0][0][0].item<float>() == doctest::Approx(25. / 255));  // 0.587 * 31 + 0.114 * 62 = 25.3
}

TEST_CASE("a centre at half a pixel is rounded as in Python, half to even") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 1, 4);
  write_image(folder / "b/0.png", 1, 8);
  const etude::ImageFolder images(folder / "", {.height = 1, .width = 1});
  auto random = generator(0);
  const auto red = [&](std::size_t i) { return images.get(i, random).first[0][0][0].item<float>() * 255; };
  CHECK(red(0) == doctest::Approx(40));  // a margin of 1.5 is rounded to 2
  CHECK(red(1) == doctest::Approx(80));  // a margin of 3.5 is rounded to 4
}

TEST_CASE("random parts and flips are those of torchvision with the same seed") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 10, 12);
  const etude::ImageFolder images(folder / "", {.height = 3,
                                                .width = 3,
                                                .mean = {0.5, 0.5, 0.5},
                                                .std = {0.25, 0.25, 0.25},
                                                .random_resized_crop = true,
                                                .random_flip = true});
  // RandomResizedCrop(3, antialias=True), RandomHorizontalFlip() and Normalize after torch.manual_seed.
  const std::vector<std::vector<float>> expected = {
      {0.76770F, -0.09505F, -0.95779F, 1.09804F, 0.23529F, -0.62745F, 1.42838F, 0.56564F, -0.29711F},
      {-0.87451F, -0.01176F, 0.85098F, -0.57255F, 0.29020F, 1.15294F, -0.27059F, 0.59216F, 1.45490F},
      {1.67216F, 1.35843F, 1.04471F, 1.80392F, 1.49020F, 1.17647F, 1.93569F, 1.62196F, 1.30824F},
      {1.14881F, 0.28607F, -0.57668F, 1.38786F, 0.54902F, -0.31373F, 0.98782F, 0.81197F, -0.05077F},
      {1.22658F, 0.21868F, -0.83006F, 0.90240F, 0.54902F, -0.49972F, 0.21098F, 0.87936F, -0.16938F}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    check_green(image_of(images, i + 1), expected[i]);
  }
}

TEST_CASE("an image too narrow for any random part gives its centre") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 2, 200);
  const auto image =
      image_of(etude::ImageFolder(folder / "", {.height = 2, .width = 3, .random_resized_crop = true}));
  // The ratio of 4/3 gives 3 columns, from column 98 on: 98 * 20 % 256 = 168.
  CHECK(torch::allclose(image[0] * 255,
                        torch::tensor({168., 188., 208., 175., 195., 215.}).view({2, 3}).to(torch::kFloat)));
}

TEST_CASE("a loader gives the same batches for any number of workers, with the labels of the classes") {
  const toy::Folder folder;
  for (int i = 0; i < 12; ++i)
    write_image(folder / ((i % 3 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".png"), 9 + i, 8);
  const auto batches = [&](int workers) {
    const etude::DataLoader loader(
        etude::ImageFolder(folder / "",
                           {.height = 5, .width = 6, .random_resized_crop = true, .random_flip = true}),
        {.batch_size = 4, .shuffle = true, .seed = 3, .num_workers = workers});
    std::vector<torch::Tensor> images, labels;
    for (auto epoch = loader.begin_epoch(0); const auto batch = epoch.next();) {
      images.push_back(batch->inputs[0]);
      labels.push_back(batch->labels[0]);
    }
    return std::pair(torch::cat(images), torch::cat(labels));
  };
  const auto [images, labels] = batches(0);
  const auto [images_of_workers, labels_of_workers] = batches(3);
  CHECK(images.sizes() == torch::IntArrayRef({12, 3, 5, 6}));
  CHECK((labels.scalar_type() == torch::kLong));
  CHECK(labels.sum().item<std::int64_t>() == 8);
  CHECK(torch::equal(images, images_of_workers));
  CHECK(torch::equal(labels, labels_of_workers));
}

TEST_CASE("an evaluation may have the classes of the training, in their order") {
  const toy::Folder folder;
  write_image(folder / "dog/0.png", 2, 2);
  const etude::ImageFolder images(folder / "", {.classes = {"cat", "dog", "bird"}});
  auto random = generator(0);
  CHECK(images.get(0, random).second == 1);
  CHECK(images.classes() == Names{"cat", "dog", "bird"});
  CHECK(fault_of(folder / "", {.classes = {"cat", "bird"}}) ==
        (folder / "dog").string() + " isn't a class: must be one of cat, bird");
}

TEST_CASE("folders that aren't a dataset are refused with their path") {
  const toy::Folder folder;
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  fs::create_directories(folder / "empty");
  CHECK(fault_of(folder / "empty") == path("empty") + " has no folders: must have one for each class");
  CHECK(fault_of(folder / "none") == path("none") + " can't be read: No such file or directory");
  fs::create_directories(folder / "bare/cat");
  CHECK(fault_of(folder / "bare") == path("bare/cat") + " has no image: must have a .png, .jpg or .jpeg");
  CHECK(fault_of(folder / "bare", {.classes = {"cat"}}) == path("bare") + " has no images");
  fs::create_directory_symlink("..", folder / "bare/cat/up");
  CHECK(fault_of(folder / "bare") == path("bare/cat/up/cat") + " is a link to a folder that contains it");
  fs::create_directories(folder / "other/cat");
  toy::write_text(folder / "other/cat/a.webp", "");
  CHECK(fault_of(folder / "other") ==
        path("other/cat/a.webp") + " can't be read: must be a PNG or JPEG file");
}

TEST_CASE("a file that can't be decoded fails with its path when it is read") {
  const toy::Folder folder;
  write_image(folder / "a/0.png", 2, 2);
  toy::write_text(folder / "a/1.jpg", "text");
  write_image(folder / "a/2.png", 1, 30000);
  const etude::ImageFolder images(folder / "", {.height = 65535, .width = 1});
  auto random = generator(0);
  const auto fault = [&](std::size_t i) {
    return toy::fault_of<etude::DataError>([&] { images.get(i, random); });
  };
  CHECK(fault(1) == (folder / "a/1.jpg").string() + ": it isn't an image: must be a PNG or JPEG file");
  CHECK(fault(2) ==
        (folder / "a/2.png").string() + ": it is 30000 x 1 pixels, which is too narrow for 1 x 65535");
  CHECK(fault(3) == "example 3 was requested, but there are 3");
}

TEST_CASE("options out of range are refused with their value") {
  const auto refused = [](etude::ImageFolderOptions options) {
    return toy::fault_of<etude::ArgumentError>([&] { etude::ImageFolder("/", std::move(options)); });
  };
  CHECK(toy::contains(refused({.height = 0}), "height is 0: must be from 1 to 65535"));
  CHECK(refused({.channels = 2}) == "channels is 2: must be 1 or 3");
  CHECK(refused({.mean = {0.5}}) == "mean has 1 numbers: must be one for each channel, 3, or none");
  CHECK(refused({.channels = 1, .std = {0}}) == "std has 0: must be finite and above 0");
  CHECK(refused({.classes = {"a", "b", "a"}}) == "classes has 'a' twice");
}

TEST_CASE("the fingerprint changes with names, classes and sizes, and no file is decoded for it") {
  const toy::Folder folder;
  fs::create_directories(folder / "a");
  toy::write_text(folder / "a/0.png", "one");
  toy::write_text(folder / "a/1.png", "two");
  const auto fingerprint = [&](etude::ImageFolderOptions options = {}) {
    return etude::ImageFolder(folder / "", std::move(options)).fingerprint();
  };
  const auto before = fingerprint();
  CHECK(before == fingerprint());
  CHECK(before == etude::Dataset(etude::ImageFolder(folder / "")).fingerprint());
  CHECK(before != fingerprint({.classes = {"b", "a"}}));
  toy::write_text(folder / "a/1.png", "three");
  const auto longer = fingerprint();
  CHECK(before != longer);
  fs::rename(folder / "a/1.png", folder / "a/2.png");
  CHECK(longer != fingerprint());
}

}  // namespace formats_image_folder_test
