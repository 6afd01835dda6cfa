#include "etude/callbacks/printer.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"

namespace {

struct Count {
  void on(etude::Log& e) { e.logs["total_flos"] = 7; }
};
struct ReadsBehind {
  bool saw_flos = false;
  void on(const etude::Log& e) { saw_flos = saw_flos || e.logs.contains("total_flos"); }
};

TEST_CASE("the printer leaves the logs as they are for those behind it") {
  // Hugging Face's takes total_flos out of the dictionary that all share.
  etude::Trainer<Count, etude::PrinterCallback, ReadsBehind> trainer(toy::options(toy::arguments()));
  trainer.train();
  CHECK(trainer.callback<ReadsBehind>().saw_flos);
  CHECK(trainer.state().log_history.back().contains("total_flos"));
}

}  // namespace
