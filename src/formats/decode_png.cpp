#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/image.hpp"

namespace etude::inline v0::detail {

namespace {

/// Reads the header, asks for 8 bits and 1 or 3 channels, and then reads the rows. libpng's simplified
/// interface isn't used because it would apply the file's gamma.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : left_(file) {
    png_ = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_) info_ = ::png_create_info_struct(png_);
    if (info_) return;
    ::png_destroy_read_struct(&png_, nullptr, nullptr);
    throw DataError("libpng can't be used: its version or the free memory doesn't suffice");
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { ::png_destroy_read_struct(&png_, &info_, nullptr); }

  void read_header() {
    guarded([this] {
      ::png_set_read_fn(png_, this, on_read);
      ::png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      // Skips texts and profiles, which may be compressed.
      ::png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      ::png_read_info(png_, info_);
      ::png_set_palette_to_rgb(png_);
      ::png_set_expand_gray_1_2_4_to_8(png_);
      ::png_set_strip_16(png_);
      ::png_set_strip_alpha(png_);
      ::png_set_interlace_handling(png_);
    });
  }

  std::int64_t height() const { return ::png_get_image_height(png_, info_); }
  std::int64_t width() const { return ::png_get_image_width(png_, info_); }
  std::int64_t channels() const {
    return ::png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR ? 3 : 1;  // a palette has the colour bit
  }
  /// The size of a pixel before compression.
  int bits() const { return ::png_get_bit_depth(png_, info_) * ::png_get_channels(png_, info_); }

  void read_rows(std::vector<png_bytep>& rows, std::size_t row_bytes) {
    guarded([&] {
      ::png_read_update_info(png_, info_);
      if (::png_get_rowbytes(png_, info_) != row_bytes) ::png_error(png_, "unexpected size of a row");
      ::png_read_image(png_, rows.data());
      ::png_read_end(png_, nullptr);
    });
  }

 private:
  // libpng's errors end in longjmp, so nothing in `act` or below it may have a destructor.
  template <class Act>
  void guarded(const Act& act) {
    if (setjmp(png_jmpbuf(png_)) != 0) throw DataError(std::string("its PNG is damaged: ") + message_);
    act();
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(::png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", message);
    ::png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}

  static void on_read(png_structp png, png_bytep to, std::size_t size) {
    auto& left = static_cast<PngReader*>(::png_get_io_ptr(png))->left_;
    if (left.size() < size) ::png_error(png, "it is truncated");
    std::memcpy(to, left.data(), size);
    left = left.subspan(size);
  }

  std::span<const std::byte> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[200] = "";
};

}  // namespace

at::Tensor decode_png(std::span<const std::byte> file) {
  PngReader reader(file);
  reader.read_header();
  constexpr double most_of_deflate = 1032;  // bytes from one byte
  auto pixels = pixels_for(reader.height(), reader.width(), reader.channels(), file.size(),
                           most_of_deflate * 8 / reader.bits());
  const auto row_bytes = static_cast<std::size_t>(pixels.stride(0));
  std::vector<png_bytep> rows(static_cast<std::size_t>(pixels.size(0)));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = pixels.data_ptr<std::uint8_t>() + i * row_bytes;
  reader.read_rows(rows, row_bytes);
  return pixels;
}

}  // namespace etude::inline v0::detail
