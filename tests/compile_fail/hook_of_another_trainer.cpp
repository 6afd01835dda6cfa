// EXPECT: method_is_never_called\w+<Mine, etude::detail::method::train_epoch_end, void ?\(const etude::Ep
// ALONE: it adds to the namespace etude
#include "etude/dispatch/callback_names.hpp"

namespace etude::inline v0 {
struct EpochEnd {};
}  // namespace etude::inline v0

struct Mine {
#ifndef ETUDE_MISTAKE
  void on(const etude::EpochEnd&) { train_epoch_end(0); }
#endif
  void train_epoch_end(int);

 private:
  void train_epoch_end(int, int);
};
static_assert(etude::detail::has_no_other_hooks<Mine>());
