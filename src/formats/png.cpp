#include "etude/formats/png.hpp"

#include <cstddef>
#include <string>

namespace etude::inline v0 {

std::string png_file(const at::Tensor& pixels) {
  if (pixels.dim() != 3 || pixels.scalar_type() != at::kByte || !pixels.device().is_cpu() ||
      !pixels.is_contiguous() || pixels.numel() == 0)
    throw DataError("a PNG needs a contiguous uint8 tensor [H, W, C] on the CPU");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.flags = PNG_IMAGE_FLAG_FAST;  // for a photo: a fifth of the time, and 3 % larger
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  switch (pixels.size(2)) {
    case 1:
      image.format = PNG_FORMAT_GRAY;
      break;
    case 3:
      image.format = PNG_FORMAT_RGB;
      break;
    case 4:
      image.format = PNG_FORMAT_RGBA;
      break;
    default:
      throw DataError("a PNG needs 1, 3 or 4 channels");
  }
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = file.size();
  const auto written = png_image_write_to_memory(&image, file.data(), &size, /*convert_to_8_bit=*/0,
                                                 pixels.data_ptr(), /*row_stride=*/0, /*colormap=*/nullptr);
  if (written == 0) throw DataError(std::string("libpng: ") + image.message);
  file.resize(size);
  return file;
}

}  // namespace etude::inline v0
