#pragma once

#include <version>

// Options that change the layout of types that a program and the library share.
#ifdef _GLIBCXX_DEBUG
#define ETUDE_DETAIL_DEBUG_MODE with_GLIBCXX_DEBUG
#else
#define ETUDE_DETAIL_DEBUG_MODE without_GLIBCXX_DEBUG
#endif
#if defined(_GLIBCXX_USE_CXX11_ABI) && !_GLIBCXX_USE_CXX11_ABI
#define ETUDE_DETAIL_STRINGS with_GLIBCXX_USE_CXX11_ABI_0
#else
#define ETUDE_DETAIL_STRINGS with_GLIBCXX_USE_CXX11_ABI_1
#endif

namespace etude::inline v0::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS {
/// Defined in a library that was compiled with these options; a program with different options doesn't link
/// to it.
extern const char as_this_file_is;
}  // namespace etude::inline v0::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS

namespace etude::inline v0::detail::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS {
[[gnu::used]] inline const char* const library =
    &library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS::as_this_file_is;
}  // namespace etude::inline v0::detail::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS
