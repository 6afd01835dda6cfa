#include "etude/formats/wav.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "etude/base/error.hpp"

namespace formats_wav_test {

using namespace std::string_literals;

TEST_CASE("a WAV file has RIFF's header, and the frames of both channels in turn") {
  const auto frames = torch::tensor({{0., 1.}, {-1., .5}}, torch::kFloat);
  // 44 bytes of header after "RIFF" and its size: 36 + 8; 8000 Hz x 2 channels x 2 bytes = 32000 = 0x7d00.
  const auto expected =
      "RIFF\x2c\0\0\0"
      "WAVE"
      "fmt \x10\0\0\0\x01\0\x02\0\x40\x1f\0\0\x00\x7d\0\0\x04\0\x10\0"
      "data\x08\0\0\0"
      "\0\0\xff\x7f\x01\x80\x00\x40"s;  // 0, 32767, -32767, 16384: 16383.5 rounds to even
  CHECK(etude::wav_file(frames, 8000) == expected);
}

TEST_CASE("a WAV file's frames may come from a transposed tensor") {
  const auto frames = torch::tensor({{0., 1.}, {-1., .5}}, torch::kFloat);
  CHECK(etude::wav_file(frames.t().contiguous().t(), 8000) == etude::wav_file(frames, 8000));
}

TEST_CASE("sounds whose numbers don't fit a WAV file's header are refused") {
  CHECK_THROWS_WITH_AS(etude::wav_file(torch::zeros({1, 32768}), 1),
                       "32768 channels: a WAV file has at most 32767", etude::DataError);
  CHECK_THROWS_WITH_AS(etude::wav_file(torch::zeros({1, 3}), 2'000'000'000),
                       "3 channels at 2000000000 Hz: a WAV file has less than 4 GiB a second",
                       etude::DataError);
}

}  // namespace formats_wav_test
