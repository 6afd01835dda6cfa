#include "etude/report/html_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <string>

#include "etude/io/file_system.hpp"
#include "etude/report/page_text.hpp"

namespace etude::inline v0::detail {

std::string script_json(const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    c == '<' ? text += "\\u003c" : text += c;
  return text;
}

std::string html_text_of(const HtmlPage& page) {
  const auto nonce = random_name();
  const auto title = html_text(cut_text(page.title, 200));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:; media-src data:; script-src 'nonce-{0}'\">\n<title>{1}</title>\n"
      "<style>\n{2}{3}</style>\n</head>\n<body>\n{4}"
      "<script nonce=\"{0}\">\n'use strict';\n{5}</script>\n</body>\n</html>\n",
      nonce, title, page_css, fmt::join(page.styles, ""), page.body, fmt::join(page.scripts, ""));
}

}  // namespace etude::inline v0::detail
