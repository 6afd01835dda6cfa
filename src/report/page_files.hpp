#pragma once

#include <string_view>

/// The files of src/report/page that only the pages of runs use.
namespace etude::inline v0::detail {

extern const std::string_view run_css, chart_js, run_js, sections_js;

}  // namespace etude::inline v0::detail
