#pragma once

/// `ETUDE_FOR_EACH(macro, context, a, b, ...)` is `macro(context, a) macro(context, b) ...`, for up to 256
/// arguments.
#define ETUDE_FOR_EACH(macro, context, ...) \
  __VA_OPT__(ETUDE_DETAIL_RESCAN_32(ETUDE_DETAIL_STEP_1(macro, context, __VA_ARGS__)))

// A macro isn't expanded inside of itself, so the last of these steps leaves the name of the first to a later
// scan. Eight at a time, for each scan goes over all that there is so far.
#define ETUDE_DETAIL_STEP_1(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_2(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_2(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_3(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_3(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_4(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_4(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_5(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_5(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_6(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_6(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_7(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_7(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_STEP_8(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_STEP_8(macro, context, first, ...) \
  macro(context, first) __VA_OPT__(ETUDE_DETAIL_AGAIN ETUDE_DETAIL_PARENS(macro, context, __VA_ARGS__))
#define ETUDE_DETAIL_AGAIN() ETUDE_DETAIL_STEP_1
#define ETUDE_DETAIL_PARENS ()

#define ETUDE_DETAIL_RESCAN_32(...) ETUDE_DETAIL_RESCAN_16(ETUDE_DETAIL_RESCAN_16(__VA_ARGS__))
#define ETUDE_DETAIL_RESCAN_16(...) \
  ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(ETUDE_DETAIL_RESCAN_4(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN_4(...) \
  ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(ETUDE_DETAIL_RESCAN(__VA_ARGS__))))
#define ETUDE_DETAIL_RESCAN(...) __VA_ARGS__
