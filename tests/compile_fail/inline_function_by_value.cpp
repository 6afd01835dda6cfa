// EXPECT: function_of_call_changes_only_a_copy_of_the_event_so_declare_it_as_one_of<.*Log ?&\)>
#include "etude/dispatch/filters.hpp"

struct Log {
  int loss;
};

#ifdef ETUDE_MISTAKE
inline auto callback = etude::on<Log>().call([](Log e) { e.loss = 0; });
#else
inline auto callback = etude::on<Log>().call([](Log& e) { e.loss = 0; });
#endif
