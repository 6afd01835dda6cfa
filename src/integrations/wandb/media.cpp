#include "etude/integrations/wandb/media.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <string_view>
#include <variant>

#include "etude/base/error.hpp"
#include "etude/metrics/sample_file.hpp"

namespace etude::inline v0::detail {

namespace {

std::string wandb_sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    throw Error("OpenSSL has no SHA-256");
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

/// A page that shows the text as it is.
std::string wandb_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  return "<meta charset=\"utf-8\"><pre style=\"white-space: pre-wrap\">" + escaped + "</pre>";
}

}  // namespace

WandbMedia wandb_media(const std::string& key, std::int64_t step, const Sample& sample) {
  const auto* text = std::get_if<std::string>(&sample.content);
  const auto* image = std::get_if<ImageSample>(&sample.content);
  WandbMedia media;
  media.bytes = text ? wandb_html(*text) : sample_file(sample);
  const auto digest = wandb_sha256(media.bytes);
  media.path = fmt::format("media/{}/{}_{}_{}{}",
                           text    ? "html"
                           : image ? "images"
                                   : "audio",
                           key, step, digest.substr(0, 20), text ? ".html" : sample_extension(sample));
  media.value = {{"_type", text    ? "html-file"
                           : image ? "image-file"
                                   : "audio-file"},
                 {"sha256", digest},
                 {"size", media.bytes.size()},
                 {"path", media.path}};
  if (image) {
    media.value["format"] = "png";
    media.value["width"] = image->pixels.size(1);
    media.value["height"] = image->pixels.size(0);
  }
  if (!sample.caption.empty()) media.value["caption"] = sample.caption;
  return media;
}

}  // namespace etude::inline v0::detail
