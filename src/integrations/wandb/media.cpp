#include "etude/integrations/wandb/media.hpp"

#include <fmt/format.h>

#include <boost/algorithm/string/replace.hpp>
#include <utility>
#include <variant>

#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/wandb/artifacts.hpp"
#include "etude/metrics/sample_file.hpp"

namespace etude::inline v0::detail {

namespace {

/// A page that shows the text as it is.
std::string wandb_html(std::string text) {
  boost::replace_all(text, "&", "&amp;");
  boost::replace_all(text, "<", "&lt;");
  boost::replace_all(text, ">", "&gt;");
  return "<meta charset=\"utf-8\"><pre style=\"white-space: pre-wrap\">" + text + "</pre>";
}

}  // namespace

WandbMedia wandb_media(const std::string& key, std::int64_t step, const Sample& sample) {
  const auto* text = std::get_if<std::string>(&sample.content);
  const auto* image = std::get_if<ImageSample>(&sample.content);
  const auto [folder, type] = text    ? std::pair("html", "html-file")
                              : image ? std::pair("images", "image-file")
                                      : std::pair("audio", "audio-file");
  WandbMedia media;
  media.bytes = text ? wandb_html(*text) : sample_file(sample);
  std::istringstream bytes(media.bytes);
  const auto digest = hexadecimal(wandb_digest(bytes, "SHA256"));
  media.path = fmt::format("media/{}/{}_{}_{}{}", folder, key, step, digest.substr(0, 20),
                           text ? ".html" : sample_extension(sample));
  media.value = {{"_type", type}, {"sha256", digest}, {"size", media.bytes.size()}, {"path", media.path}};
  if (image) {
    media.value["format"] = "png";
    media.value["width"] = image->pixels.size(1);
    media.value["height"] = image->pixels.size(0);
  }
  if (!sample.caption.empty()) media.value["caption"] = sample.caption;
  return media;
}

}  // namespace etude::inline v0::detail
