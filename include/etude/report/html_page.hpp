#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// A page that a browser shows without a network, light or dark as its reader prefers. `data-theme="light"`
/// or "dark" on the root overrides that preference.
struct HtmlPage {
  std::string_view title;       ///< any text
  std::string_view style = {};  ///< CSS, after that of all pages
  std::string_view light = {};  ///< CSS properties such as "--best:#009e73;", besides those of all pages
  std::string_view dark = {};
  std::string_view body = {};    ///< HTML
  std::string_view script = {};  ///< The only one that runs, even if a text got into the page as HTML.
};

std::string html_text_of(const HtmlPage& page);

}  // namespace etude::inline v0::detail
