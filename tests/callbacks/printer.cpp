#include "etude/callbacks/printer.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "common/child.hpp"
#include "common/toy.hpp"

namespace callbacks_printer_test {

struct Count {
  void on(etude::Log& e) { e.logs["total_flos"] = 7; }
};
struct ReadsBehind {
  bool saw_flos = false;
  void on(const etude::Log& e) { saw_flos = saw_flos || e.logs.contains("total_flos"); }
};

TEST_CASE("the printer leaves the logs unchanged for callbacks after it") {
  // Hugging Face's printer removes total_flos from the dictionary that all callbacks share.
  etude::Trainer<Count, etude::PrinterCallback, ReadsBehind> trainer(toy::options(toy::arguments()));
  trainer.train();
  CHECK(trainer.callback<ReadsBehind>().saw_flos);
  CHECK(trainer.state().log_history.back().contains("total_flos"));
}

TEST_CASE("logs to a closed pipe don't end the training") {
  CHECK(toy::end_of_child([] {
          ::signal(SIGPIPE, SIG_DFL);
          int ends[2];
          if (::pipe(ends) != 0) return 1;
          ::dup2(ends[1], STDOUT_FILENO);
          ::close(ends[0]);
          auto args = toy::arguments();
          args.logging_strategy = etude::IntervalStrategy::steps;
          args.logging_steps = 1;
          if (etude::Trainer<>(toy::options(args, 3)).train().global_step != 3) return 2;
          sigset_t blocked;
          pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
          return sigismember(&blocked, SIGPIPE) == 0 ? 0 : 3;
        }) == "exit 0");
}

}  // namespace callbacks_printer_test
