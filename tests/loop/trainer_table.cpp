#include "etude/loop/trainer_table.hpp"

#include <doctest/doctest.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/dispatch/runtime_callbacks.hpp"

namespace loop_trainer_table_test {

struct Counts {
  int steps = 0;
  void on(const etude::StepEnd&) { ++steps; }
};
struct Renames {
  void on(etude::Log& e) const { e.logs["renamed"] = 1; }
};
struct Listens final : etude::TrainerBase<Listens, etude::NoDefaultCallbacks, Counts> {
  using TrainerBase::TrainerBase;
  int seen = 0;
  void on(const etude::StepEnd&) { seen = callback<Counts>().steps; }
  void on(const etude::EpochEnd&) {}
};

/// These functions count the events that a trainer hears, and the events that its handlers may change.
template <class Trainer, class... Events>
constexpr int heard(etude::events<Events...>) {
  return (0 + ... + (Trainer::event_table().template slot<Events>().raise != nullptr));
}
template <class Trainer, class... Events>
constexpr int heard_to_all(etude::events<Events...>) {
  return (0 + ... + (Trainer::event_table().template slot<Events>().raise_to_all != nullptr));
}
template <class Trainer, class... Events>
constexpr int written(etude::events<Events...>) {
  return (0 + ... + Trainer::event_table().template slot<Events>().is_written);
}
template <class Trainer, class Event>
constexpr bool hears = Trainer::event_table().template slot<Event>().raise != nullptr;
template <class... Events>
constexpr int number_of(etude::events<Events...>) {
  return sizeof...(Events);
}
constexpr etude::Vocabulary all;

TEST_CASE("the slots of a trainer's table are constants, and null exactly where nobody handles the event") {
  using Nobody = etude::Trainer<etude::NoDefaultCallbacks>;
  static_assert(heard<Nobody>(all) == 0 && heard_to_all<Nobody>(all) == 0 && written<Nobody>(all) == 0);
  using One = etude::Trainer<etude::NoDefaultCallbacks, Counts>;
  static_assert(hears<One, etude::StepEnd> && heard<One>(all) == 1 && heard_to_all<One>(all) == 1);
  static_assert(written<One>(all) == 0);
  using Writes = etude::Trainer<etude::NoDefaultCallbacks, Counts, Renames>;
  static_assert(hears<Writes, etude::StepEnd> && hears<Writes, etude::Log> && heard<Writes>(all) == 2);
  static_assert(Writes::event_table().slot<etude::Log>().is_written && written<Writes>(all) == 1);
  static_assert(hears<Listens, etude::EpochEnd> && hears<Listens, etude::StepEnd> &&
                heard<Listens>(all) == 2);
  // A callback added at run time may handle any event.
  using AtRunTime = etude::Trainer<etude::NoDefaultCallbacks, etude::RuntimeCallbacks>;
  static_assert(heard<AtRunTime>(all) == number_of(all));
  CHECK(hears<One, etude::StepEnd>);
}

TEST_CASE("a slot calls the trainer's own handler before its callbacks") {
  Listens trainer(toy::options(toy::arguments()));
  trainer.train();
  CHECK(trainer.callback<Counts>().steps == 2);
  CHECK(trainer.seen == 1);
}

struct Detaches {
  void on(etude::BackwardBegin& e) const { e.loss = torch::zeros({}); }
};

TEST_CASE("a callback added at run time is known to change an event") {
  etude::Trainer<etude::RuntimeCallbacks> trainer(toy::options(toy::arguments()));
  trainer.add_callback(Detaches());
  try {
    trainer.train();
    FAIL("it doesn't throw");
  } catch (const etude::DataError& error) {
    CHECK(std::string(error.what()).starts_with("Detaches has changed the loss in BackwardBegin"));
  }
}

struct Throws {
  void on(const etude::StepEnd&) const { throw error; }
  static inline const std::runtime_error error{"the one"};
};

TEST_CASE("an exception leaves a slot, and the training, as the object that was thrown") {
  struct Sees {
    std::exception_ptr error;
    void on(const etude::TrainError& e) { error = e.error; }
  };
  etude::Trainer<Throws, Sees> trainer(toy::options(toy::arguments()));
  try {
    trainer.train();
    FAIL("it doesn't throw");
  } catch (const std::runtime_error&) {
    CHECK((std::current_exception() == trainer.callback<Sees>().error));
  }
}

}  // namespace loop_trainer_table_test
