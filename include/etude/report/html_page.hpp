#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

/// An HTML page that works offline, light or dark as the browser prefers. `data-theme="light"` or "dark" on
/// the root element overrides that preference.
struct HtmlPage {
  std::string_view title;                     ///< any text
  std::vector<std::string_view> styles = {};  ///< CSS, after page_css
  std::string_view body = {};                 ///< HTML
  /// Parts of the page's script. No other script runs, even if a text got into the page as HTML.
  std::vector<std::string_view> scripts = {};
};

std::string html_text_of(const HtmlPage& page);

/// JSON that can stand in a script element: it has no "<" and no invalid UTF-8.
std::string script_json(const nlohmann::ordered_json& json);

/// The files of src/report/page that any page can use; CMake compiles them into the library.
extern const std::string_view page_css, axis_js, dom_js, text_js;

}  // namespace etude::inline v0::detail
