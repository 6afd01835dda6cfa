// EXPECT: function_of_call_cannot_take_the_event_so_declare_it_as_one_of<.*StepEnd ?&\)>
#include "etude/dispatch/filters.hpp"

struct StepEnd {};
struct EpochEnd {};

#ifdef ETUDE_MISTAKE
inline auto callback = etude::on<StepEnd>().every(2).call([](const EpochEnd&) {});
#else
inline auto callback = etude::on<StepEnd>().every(2).call([](const StepEnd&) {});
#endif
