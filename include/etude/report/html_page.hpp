#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

/// An HTML page that works offline, light or dark as the browser prefers. `data-theme="light"` or "dark" on
/// the root element overrides that preference.
struct HtmlPage {
  std::string_view title;                     ///< any text
  std::vector<std::string_view> styles = {};  ///< CSS, after that of all pages
  std::string_view body = {};                 ///< HTML
  /// Parts of the only script that runs, even if a text got into the page as HTML.
  std::vector<std::string_view> scripts = {};
};

std::string html_text_of(const HtmlPage& page);

}  // namespace etude::inline v0::detail
