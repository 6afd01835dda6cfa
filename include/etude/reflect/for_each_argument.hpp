#pragma once

/// `ETUDE_FOR_EACH(macro, context, a, b, ...)` expands to `macro(context, a) macro(context, b) ...`, for up
/// to 250 arguments. Boost.Preprocessor takes at most 64 before Boost 1.75, and TrainingArguments has more.
#define ETUDE_FOR_EACH(macro, context, ...) \
  __VA_OPT__(ETUDE_DETAIL_RESCAN_256(ETUDE_DETAIL_STEP(macro, context, __VA_ARGS__)))

// A macro isn't expanded inside itself, so each step leaves the name of the next one to a later scan.
#define ETUDE_DETAIL_STEP(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_AGAIN ETUDE_DETAIL_PARENS(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_AGAIN() ETUDE_DETAIL_STEP
#define ETUDE_DETAIL_PARENS ()

#define ETUDE_DETAIL_RESCAN_256(...) \
  ETUDE_DETAIL_RESCAN_64(ETUDE_DETAIL_RESCAN_64(ETUDE_DETAIL_RESCAN_64(ETUDE_DETAIL_RESCAN_64(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN_64(...) \
  ETUDE_DETAIL_RESCAN_16(ETUDE_DETAIL_RESCAN_16(ETUDE_DETAIL_RESCAN_16(ETUDE_DETAIL_RESCAN_16(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN_16(...) \
  ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN_4(...) \
  ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN(...) __VA_ARGS__
