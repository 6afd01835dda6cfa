#pragma once

#ifndef ETUDE_PICTURES
#error "etude/formats/png.hpp needs a library: link etude::png"
#endif

#include <ATen/core/Tensor.h>
#include <png.h>

#include <string>

#include "etude/base/error.hpp"

/// Needs libpng (http://www.libpng.org) and the CMake target etude::png. Not included by etude.hpp.
namespace etude::inline v0 {

/// Returns the bytes of a PNG file with these pixels, a contiguous uint8 tensor [H, W, C] on the CPU with C =
/// 1 (grey), 3 (RGB) or 4 (RGBA), at 8 bits per channel. Throws DataError for any other tensor, and if libpng
/// refuses it.
std::string png_file(const at::Tensor& pixels);

}  // namespace etude::inline v0
