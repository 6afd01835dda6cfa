#pragma once

#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// An HTML page that works offline, light or dark as the browser prefers. `data-theme="light"` or "dark" on
/// the root element overrides that preference.
struct HtmlPage {
  std::string_view title;       ///< any text
  std::string_view style = {};  ///< CSS, appended to the CSS shared by all pages
  std::string_view light = {};  ///< CSS properties such as "--best:#009e73;", added to the shared ones
  std::string_view dark = {};
  std::string_view body = {};    ///< HTML
  std::string_view script = {};  ///< The only script that may run, even if text is injected as HTML.
};

std::string html_text_of(const HtmlPage& page);

}  // namespace etude::inline v0::detail
