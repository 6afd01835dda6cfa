#include "etude/metrics/sample.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <variant>

#include "etude/base/error.hpp"

namespace metrics_sample_test {

using etude::DataError;

torch::Tensor pixels_of(const torch::Tensor& image) {
  return std::get<etude::ImageSample>(etude::image_sample("i", image).content).pixels;
}
torch::Tensor frames_of(const torch::Tensor& audio) {
  return std::get<etude::AudioSample>(etude::audio_sample("a", audio, 8000).content).frames;
}

TEST_CASE("a picture of any layout becomes rows of pixels") {
  const auto rgb = torch::arange(24, torch::kByte).reshape({2, 4, 3});
  CHECK(torch::equal(pixels_of(rgb), rgb));
  CHECK(torch::equal(pixels_of(rgb.permute({2, 0, 1})), rgb));
  CHECK(pixels_of(rgb.permute({2, 0, 1})).is_contiguous());
  const auto grey = torch::arange(10, torch::kByte).reshape({2, 5});
  CHECK(torch::equal(pixels_of(grey), grey.unsqueeze(2)));
  CHECK(torch::equal(pixels_of(grey.unsqueeze(0)), grey.unsqueeze(2)));
}

TEST_CASE("a shape that fits both layouts is [C, H, W]") {
  const auto image = torch::arange(18, torch::kByte).reshape({3, 2, 3});
  CHECK(torch::equal(pixels_of(image), image.permute({1, 2, 0})));
}

TEST_CASE("numbers from 0 to 1 become bytes from 0 to 255, rounded") {
  const auto image = torch::tensor({{0., 1.}, {.5, .001}});  // 127.5 rounds to even, .255 to 0
  for (const auto type : {torch::kFloat, torch::kDouble})
    CHECK(torch::equal(pixels_of(image.to(type)).squeeze(2),
                       torch::tensor({{0, 255}, {128, 0}}, torch::kByte)));
}

TEST_CASE("a sample is a copy, without a graph, of the tensor as it was") {
  const auto image = torch::zeros({2, 2}, torch::kByte);
  const auto pixels = pixels_of(image);
  image.fill_(9);
  CHECK(pixels.sum().item<int>() == 0);
  const auto audio = torch::zeros({3}, torch::requires_grad());
  CHECK_FALSE(frames_of(audio).requires_grad());
}

TEST_CASE("the smaller size of a sound counts its channels") {
  const auto stereo = torch::tensor({{.0, .25, .5}, {-.0, -.25, -.5}}, torch::kFloat);
  CHECK(torch::equal(frames_of(stereo), stereo.t()));
  CHECK(torch::equal(frames_of(stereo.t()), stereo.t()));
  CHECK(torch::equal(frames_of(stereo[0]), stereo[0].unsqueeze(1)));
  const auto square = torch::tensor({{.0, .25}, {.5, .75}}, torch::kFloat);
  CHECK(torch::equal(frames_of(square), square.t()));
}

TEST_CASE("invalid bytes in texts and captions are replaced, since a model may write any") {
  CHECK(std::get<std::string>(etude::text_sample("t", "a\xff").content) == "a\xEF\xBF\xBD");
  CHECK(etude::image_sample("i", torch::zeros({1, 1}), "\xff").caption == "\xEF\xBF\xBD");
}

TEST_CASE("an error names the sample, the value and what is allowed") {
  CHECK_THROWS_WITH_AS(
      etude::image_sample("cat", torch::zeros({2, 2, 2})),
      "sample 'cat': its shape is [2, 2, 2]: must be [C, H, W], [H, W, C] with 1, 3 or 4 channels, or "
      "[H, W], and not empty",
      DataError);
  CHECK_THROWS_WITH_AS(etude::image_sample("cat", torch::tensor({{-.5, 1.5}})),
                       "sample 'cat': its values are from -0.5 to 1.5: must be within [0, 1]", DataError);
  CHECK_THROWS_WITH_AS(etude::image_sample("cat", torch::zeros({2, 2}, torch::kLong)),
                       "sample 'cat': its dtype is Long: must be uint8, or floating-point in [0, 1]",
                       DataError);
  CHECK_THROWS_WITH_AS(etude::audio_sample("mew", torch::zeros({2, 2, 2}), 8000),
                       "sample 'mew': its shape is [2, 2, 2]: must be [frames], [channels, frames] or "
                       "[frames, channels], and not empty",
                       DataError);
  CHECK_THROWS_WITH_AS(etude::audio_sample("mew", torch::zeros({2}), 0),
                       "sample 'mew': its sample rate is 0: must be above 0, in Hz", DataError);
  CHECK_THROWS_WITH_AS(etude::audio_sample("mew", torch::zeros({2}, torch::kShort), 8000),
                       "sample 'mew': its dtype is Short: must be floating-point in [-1, 1]", DataError);
}

TEST_CASE("values that aren't numbers, and tensors without any, are refused") {
  const auto nan = torch::full({2, 2}, std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(etude::image_sample("i", nan), DataError);
  CHECK_THROWS_AS(etude::audio_sample("a", nan, 8000), DataError);
  CHECK_THROWS_AS(etude::image_sample("i", torch::zeros({3, 0, 2})), DataError);
  CHECK_THROWS_AS(etude::audio_sample("a", torch::zeros({0}), 8000), DataError);
  CHECK_THROWS_AS(etude::image_sample("i", {}), DataError);
}

TEST_CASE("a name is a relative path, since files are named after it") {
  CHECK(etude::text_sample("cats/first", "").name == "cats/first");
  for (const auto* name : {"", "/etc/x", "../x", "a//b", "a/.", "\xff"})
    CHECK_THROWS_AS(etude::text_sample(name, ""), DataError);
}

}  // namespace metrics_sample_test
