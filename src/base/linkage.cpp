#include "etude/base/linkage.hpp"

namespace etude::inline v0::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS {
const char as_this_file_is = 0;
}  // namespace etude::inline v0::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS
