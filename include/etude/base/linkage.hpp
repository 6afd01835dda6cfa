#pragma once

#include <version>

/// A program that links `etude::etude` is compiled with ETUDE_COMPILED: definitions that depend on nobody's
/// trainer come from that library, and a user's file compiles the declarations alone. Without it, with
/// `etude::header_only`, each header includes its definitions. They are in the folder `impl` of each room.
///
/// A virtual function is ETUDE_INLINE where it is declared, too: else every file would compile the class's
/// table of virtual functions, and all of them.
#ifdef ETUDE_COMPILED
#define ETUDE_INLINE
#else
#define ETUDE_INLINE inline
#endif

#ifdef ETUDE_COMPILED
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

namespace etude::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS {
/// Defined by a library that was compiled with the same of these options: with others a program doesn't link.
extern const char as_this_file_is;
}  // namespace etude::library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS

namespace etude::detail::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS {
[[gnu::used]] inline const char* const library =
    &library_compiled::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS::as_this_file_is;
}  // namespace etude::detail::ETUDE_DETAIL_DEBUG_MODE::ETUDE_DETAIL_STRINGS
#endif
