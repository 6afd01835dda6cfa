// EXPECT: predicate_of_when_cannot_take_the_event_so_declare_it_as<.*bool ?\(const Log ?&\)>
#include "etude/dispatch/filters.hpp"

struct Log {
  int loss;
};

#ifdef ETUDE_MISTAKE
inline auto callback = etude::on<Log>().when([](Log& e) { return e.loss > 0; }).call([](const Log&) {});
#else
inline auto callback = etude::on<Log>().when([](const Log& e) { return e.loss > 0; }).call([](const Log&) {});
#endif
