#include <ATen/ops/empty.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h needs FILE
#include <span>
#include <string>

#include <jerror.h>
#include <jpeglib.h>

#include "etude/base/error.hpp"
#include "etude/formats/image.hpp"

namespace etude::inline v0::detail {

namespace {

class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> file) : file_(file) {
    jpeg_.err = ::jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    jpeg_.client_data = this;
    progress_.progress_monitor = on_progress;
    guarded([this] { jpeg_create_decompress(&jpeg_); });
    jpeg_.progress = &progress_;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { ::jpeg_destroy_decompress(&jpeg_); }

  void read_header() {
    guarded([this] {
      ::jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file_.data()),
                     static_cast<unsigned long>(file_.size()));
      ::jpeg_read_header(&jpeg_, TRUE);
      if (jpeg_.num_components == 1)
        jpeg_.out_color_space = JCS_GRAYSCALE;
      else if (jpeg_.num_components == 3)
        jpeg_.out_color_space = JCS_RGB;
      else
        jpeg_.out_color_space = JCS_CMYK;
    });
  }

  std::int64_t height() const { return jpeg_.image_height; }
  std::int64_t width() const { return jpeg_.image_width; }
  int channels() const { return jpeg_.num_components; }

  void read_rows(std::uint8_t* pixels, std::size_t row_bytes) {
    guarded([&] {
      ::jpeg_start_decompress(&jpeg_);
      while (jpeg_.output_scanline < jpeg_.output_height) {
        JSAMPROW row = pixels + jpeg_.output_scanline * row_bytes;
        ::jpeg_read_scanlines(&jpeg_, &row, 1);
      }
      ::jpeg_finish_decompress(&jpeg_);
    });
  }

 private:
  // libjpeg's errors end in longjmp, so nothing in `act` or below it may have a destructor.
  template <class Act>
  void guarded(const Act& act) {
    if (setjmp(on_fault_) != 0) throw DataError(std::string("its JPEG is damaged: ") + message_);
    act();
  }

  [[noreturn]] void fail() { std::longjmp(on_fault_, 1); }

  static JpegReader& self(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    jpeg->err->format_message(jpeg, self(jpeg).message_);
    self(jpeg).fail();
  }

  // After these warnings, libjpeg continues with grey pixels; its other warnings don't concern the pixels.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    switch (jpeg->err->msg_code) {
      case JWRN_JPEG_EOF:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_MUST_RESYNC:
        on_error(jpeg);
      default:
        break;
    }
  }

  // Each scan of a progressive file, however short, is a pass over the whole image, so a small file could
  // take forever.
  static void on_progress(j_common_ptr jpeg) {
    constexpr int most_scans = 100;
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= most_scans) return;
    std::snprintf(self(jpeg).message_, JMSG_LENGTH_MAX, "more than %d scans", most_scans);
    self(jpeg).fail();
  }

  std::span<const std::byte> file_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf on_fault_{};
  char message_[JMSG_LENGTH_MAX] = "";
};

/// Converts as Pillow does: the four channels are taken as inverted, as Adobe's programs write them.
at::Tensor cmyk_to_rgb(const at::Tensor& cmyk) {
  auto rgb = at::empty({cmyk.size(0), cmyk.size(1), 3}, at::kByte);
  const auto* from = cmyk.data_ptr<std::uint8_t>();
  auto* to = rgb.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < rgb.numel(); i += 3, from += 4)
    for (int channel = 0; channel < 3; ++channel) {
      const int light = from[3], product = (255 - from[channel]) * light + 128;
      to[i + channel] = static_cast<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
    }
  return rgb;
}

}  // namespace

at::Tensor decode_jpeg(std::span<const std::byte> file) {
  JpegReader reader(file);
  reader.read_header();
  const auto channels = reader.channels();
  if (channels != 1 && channels != 3 && channels != 4)
    throw DataError("it has " + std::to_string(channels) + " channels: must be 1, 3 or 4");
  constexpr double most_of_huffman = 512;  // a block of 64 pixels has at least one bit
  auto pixels = pixels_for(reader.height(), reader.width(), channels, file.size(), most_of_huffman);
  reader.read_rows(pixels.data_ptr<std::uint8_t>(), static_cast<std::size_t>(pixels.stride(0)));
  return channels == 4 ? cmyk_to_rgb(pixels) : pixels;
}

}  // namespace etude::inline v0::detail
