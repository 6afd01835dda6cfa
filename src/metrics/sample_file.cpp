#include "etude/metrics/sample_file.hpp"

#include <variant>

namespace etude::inline v0::detail {

std::string_view sample_extension(const Sample& sample) {
  constexpr std::string_view extensions[] = {".txt", ".png", ".wav"};
  return extensions[sample.content.index()];
}

std::string sample_file(const Sample& sample) {
  if (const auto* image = std::get_if<ImageSample>(&sample.content)) return png_file(image->pixels);
  if (const auto* audio = std::get_if<AudioSample>(&sample.content))
    return wav_file(audio->frames, audio->sample_rate);
  return std::get<std::string>(sample.content);
}

}  // namespace etude::inline v0::detail
