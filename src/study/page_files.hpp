#pragma once

#include <string_view>

/// The files of src/study/page, which CMake compiles into the library.
namespace etude::inline v0::detail {

extern const std::string_view study_css, study_charts_js, study_js;

}  // namespace etude::inline v0::detail
