#pragma once

#include <functional>
#include <string>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0::detail {

/// The HTML that `write_report` writes.
std::string report_page(const std::string& study_name, const std::vector<FrozenTrial>& trials,
                        const std::vector<StudyDirection>& directions,
                        const std::function<std::string(const FrozenTrial&)>& link = {});

}  // namespace etude::inline v0::detail
