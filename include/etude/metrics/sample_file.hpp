#pragma once

#ifndef ETUDE_PICTURES
#error "etude/metrics/sample_file.hpp needs a library: link etude::png"
#endif

#include <string>
#include <string_view>

#include "etude/formats/png.hpp"
#include "etude/formats/wav.hpp"
#include "etude/metrics/sample.hpp"

/// Samples as files, for trackers and folders. Needs libpng, as formats/png.hpp does.
namespace etude::inline v0::detail {

/// The extension of the sample's file: ".txt", ".png" or ".wav".
std::string_view sample_extension(const Sample& sample);

/// The bytes of a sample's file. Throws DataError for audio that is too long for the format.
std::string sample_file(const Sample& sample);

}  // namespace etude::inline v0::detail
