#pragma once

/// Etude is headers only, unless a program links `etude::compiled`, which defines ETUDE_COMPILED: then what
/// depends on nobody's trainer comes from that library, and a user's file compiles the declarations alone.
/// The definitions are in `impl/`, in each room.
///
/// A virtual function is ETUDE_INLINE where it is declared, too: else every file would compile the class's
/// table of virtual functions, and all of them.
#ifdef ETUDE_COMPILED
#define ETUDE_INLINE
#else
#define ETUDE_INLINE inline
#endif
