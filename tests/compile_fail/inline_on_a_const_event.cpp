// EXPECT: a_plain_class_is_expected_so_leave_out_const_and_reference<const StepEnd ?&>
#include "etude/dispatch/filters.hpp"

struct StepEnd {};

#ifdef ETUDE_MISTAKE
inline auto callback = etude::on<const StepEnd&>().call([](const StepEnd&) {});
#else
inline auto callback = etude::on<StepEnd>().call([](const StepEnd&) {});
#endif
