#pragma once

#include <string_view>

/// The files of src/report/page, which CMake compiles into the library.
namespace etude::inline v0::detail {

extern const std::string_view page_css, run_css;
extern const std::string_view axis_js, chart_js, dom_js, run_js, sections_js, text_js;

}  // namespace etude::inline v0::detail
