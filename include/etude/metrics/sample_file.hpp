#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "etude/formats/png.hpp"
#include "etude/formats/wav.hpp"
#include "etude/metrics/sample.hpp"

/// Samples as files, for trackers and folders. Needs libpng, as formats/png.hpp does.
namespace etude::inline v0::detail {

/// ".txt", ".png" or ".wav".
inline std::string_view sample_extension(const Sample& sample) {
  constexpr std::string_view extensions[] = {".txt", ".png", ".wav"};
  return extensions[sample.content.index()];
}

/// The bytes of a sample's file. Throws DataError for a sound that is too long for it.
inline std::string sample_file(const Sample& sample) {
  if (const auto* image = std::get_if<ImageSample>(&sample.content)) return png_file(image->pixels);
  if (const auto* audio = std::get_if<AudioSample>(&sample.content))
    return wav_file(audio->frames, audio->sample_rate);
  return std::get<std::string>(sample.content);
}

}  // namespace etude::inline v0::detail
