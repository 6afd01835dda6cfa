// EXPECT: method_is_never_called_so_write_on_as<Listener, etude::mistake::method::on_train_epoch_end, void
#include "etude/event_methods.hpp"

namespace etude {
struct EpochEnd {};
}  // namespace etude

struct Listener {
#ifndef ETUDE_MISTAKE
  void on(const etude::EpochEnd&) { on_train_epoch_end(0); }
#endif
  void on_train_epoch_end(int);

 private:
  void on_train_epoch_end(int, int);
};
static_assert(etude::detail::has_no_event_methods<Listener, etude::EpochEnd>());
