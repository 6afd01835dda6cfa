#include "etude/dispatch/runtime_callbacks.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/dispatch/filters.hpp"

namespace dispatch_runtime_callbacks_test {

struct Step {
  int number;
};
struct Epoch {};
struct Own {};
struct OwnToo {};
using Known = etude::events<Step, Epoch>;

struct Sum {
  int total = 0;
  void on(const Step& e) { total += e.number; }
};
struct Negate {
  void on(Step& e) { e.number = -e.number; }
};
struct OnOwn {
  int heard = 0;
  void on(const Own&) { ++heard; }
};
struct OnMuch {
  using handles = etude::events<Step, Own, OwnToo>;
  std::vector<std::string> heard = {};
  void on(const Step&) { heard.emplace_back("Step"); }
  void on(const Own&) { heard.emplace_back("Own"); }
  void on(const OwnToo&) { heard.emplace_back("OwnToo"); }
};

using Handler = etude::CallbackHandler<Sum, etude::RuntimeCallbacks>;
etude::RuntimeCallbacks& runtime(Handler& handler) { return handler.callbacks()[boost::hana::size_c<1>]; }

TEST_CASE("run-time callbacks receive events after the static ones, in the order of adding") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Negate{});
  runtime(handler).add(Known{}, Sum{});
  handler.call_event(Step{3});
  CHECK(handler.callbacks()[boost::hana::size_c<0>].total == 3);
  CHECK(runtime(handler).get<Sum>().total == -3);
}

/// Records numbers at the end of each event.
struct RecordsLast {
  static constexpr bool runs_last = true;
  std::vector<int> numbers = {};
  void on(const Step& e) { numbers.push_back(e.number); }
};
/// Adds a callback while it handles an event.
struct AddsSum {
  etude::RuntimeCallbacks* callbacks;
  bool done = false;
  void on(const Step&) {
    if (!std::exchange(done, true)) callbacks->add(Known{}, Sum{});
  }
};

TEST_CASE(
    "a callback that runs last follows those that are added after it, also while an event is delivered") {
  Handler handler{Sum{}, {}};
  auto& callbacks = runtime(handler);
  callbacks.add(Known{}, RecordsLast{});
  // Negate writes the event, although a reader that runs last has been added.
  callbacks.add(Known{}, Negate{});
  CHECK(callbacks.names() == std::vector<std::string_view>{"Negate", "RecordsLast"});
  CHECK(callbacks.handlers<Step>() ==
        std::vector<std::pair<std::string, bool>>{{"Negate", true}, {"RecordsLast", false}});
  handler.call_event(Step{3});
  callbacks.remove<Negate>();
  callbacks.add(Known{}, AddsSum{&callbacks});
  handler.call_event(Step{4});
  CHECK(callbacks.get<Sum>().total == 0);
  CHECK(callbacks.get<RecordsLast>().numbers == std::vector<int>{-3, 4});
}

TEST_CASE("custom events reach them by their only handler or by their declaration") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, OnOwn{});
  runtime(handler).add(Known{}, OnMuch{});
  handler.call_event(Own{});
  handler.call_event(OwnToo{});
  handler.call_event(Step{1});
  CHECK(runtime(handler).get<OnOwn>().heard == 1);
  CHECK(runtime(handler).get<OnMuch>().heard == std::vector<std::string>{"Own", "OwnToo", "Step"});
}

TEST_CASE("a handle removes its callback and reports whether it exists") {
  Handler handler{Sum{}, {}};
  auto handle = runtime(handler).add(Known{}, OnMuch{});
  CHECK(handle.attached());
  handle.remove();
  CHECK_FALSE(handle.attached());
  CHECK_THROWS_AS(runtime(handler).get<OnMuch>(), etude::ArgumentError);
}

TEST_CASE("a scoped callback lives as long as its scope") {
  Handler handler{Sum{}, {}};
  int heard = 0;
  {
    const etude::ScopedCallback scoped(
        runtime(handler).add(Known{}, etude::on<Step>().call([&](const Step&) { ++heard; })));
    handler.call_event(Step{1});
  }
  handler.call_event(Step{1});
  CHECK(heard == 1);
}

TEST_CASE("pop returns a callback with its state") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Sum{});
  handler.call_event(Step{5});
  CHECK(runtime(handler).pop<Sum>().total == 5);
  handler.call_event(Step{5});
  CHECK_THROWS_AS(runtime(handler).pop<Sum>(), etude::ArgumentError);
}

TEST_CASE("a missing callback is reported the same way everywhere") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Negate{});
  const std::string said = "Sum is not among the run-time callbacks of this trainer: [Negate]";
  CHECK_THROWS_WITH_AS(runtime(handler).get<Sum>(), said.c_str(), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(runtime(handler).pop<Sum>(), said.c_str(), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(runtime(handler).remove<Sum>(), said.c_str(), etude::ArgumentError);
  auto handle = runtime(handler).add(Known{}, OnOwn{});
  handle.remove();
  CHECK_THROWS_WITH_AS(
      handle.remove(),
      "the callback of this handle is not among the run-time callbacks of this trainer: [Negate]",
      etude::ArgumentError);
}

TEST_CASE("a handle outlives its trainer") {
  etude::CallbackHandle handle;
  {
    Handler handler{Sum{}, {}};
    handle = runtime(handler).add(Known{}, OnOwn{});
  }
  CHECK_FALSE(handle.attached());
  CHECK_THROWS_AS(handle.remove(), etude::ArgumentError);
}

TEST_CASE("a second callback of a type is refused unless the type allows it") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, OnOwn{});
  CHECK_THROWS_AS(runtime(handler).add(Known{}, OnOwn{}), etude::ArgumentError);
  int heard = 0;
  for (int i = 0; i < 2; ++i)
    runtime(handler).add(Known{}, etude::on<Step>().call([&](const Step&) { ++heard; }));
  handler.call_event(Step{1});
  CHECK(heard == 2);
}

TEST_CASE("a writer after a reader is refused, naming both") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Sum{});
  CHECK_THROWS_WITH_AS(runtime(handler).add(Known{}, Negate{}),
                       "Negate writes Step and would run after Sum, which reads it: add it earlier",
                       etude::ArgumentError);
  handler.call_event(Step{2});
  CHECK(runtime(handler).get<Sum>().total == 2);
}

struct BeforeSum {
  using runs_before = etude::callbacks<Sum>;
  void on(const Step&) {}
};

TEST_CASE("a callback that must run before an existing one is refused") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Sum{});
  CHECK_THROWS_AS(runtime(handler).add(Known{}, BeforeSum{}), etude::ArgumentError);
  runtime(handler).remove<Sum>();
  runtime(handler).add(Known{}, BeforeSum{});
}

struct RemovesItself {
  std::shared_ptr<etude::CallbackHandle> own;
  std::shared_ptr<int> heard;
  void on(const Step&) {
    ++*heard;
    own->remove();
    ++*heard;  // still exists, and may continue
  }
};

TEST_CASE("a callback may remove itself during a call") {
  Handler handler{Sum{}, {}};
  const auto own = std::make_shared<etude::CallbackHandle>();
  const auto heard = std::make_shared<int>(0);
  *own = runtime(handler).add(Known{}, RemovesItself{own, heard});
  runtime(handler).add(Known{}, Sum{});
  handler.call_event(Step{1});
  handler.call_event(Step{1});
  CHECK(*heard == 2);
  CHECK(runtime(handler).get<Sum>().total == 2);
}

struct AddsOthers {
  etude::RuntimeCallbacks* callbacks;
  int* heard;
  void on(const Step&) {
    for (int i = 0; i < 100; ++i)
      callbacks->add(Known{}, etude::on<Step>().call([heard = heard](const Step&) { ++*heard; }));
  }
};

TEST_CASE("callbacks that are added during an event receive the next one") {
  Handler handler{Sum{}, {}};
  int heard = 0;
  const etude::ScopedCallback adder(runtime(handler).add(Known{}, AddsOthers{&runtime(handler), &heard}));
  handler.call_event(Step{1});
  CHECK(heard == 0);
  handler.call_event(Step{1});
  CHECK(heard == 100);
}

struct RemovesNext {
  etude::CallbackHandle* next;
  void on(const Step&) {
    if (next->attached()) next->remove();
  }
};

TEST_CASE("a callback that an earlier one removes doesn't receive the event") {
  Handler handler{Sum{}, {}};
  etude::CallbackHandle next;
  int heard = 0;
  runtime(handler).add(Known{}, RemovesNext{&next});
  next = runtime(handler).add(Known{}, etude::on<Step>().call([&](const Step&) { ++heard; }));
  handler.call_event(Step{1});
  CHECK(heard == 0);
}

struct Thrower {
  void on(const Step&) { throw std::runtime_error("no"); }
};

TEST_CASE("the origin of an exception is the run-time callback, and the list is intact afterwards") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Thrower{});
  runtime(handler).add(Known{}, Sum{});
  try {
    handler.call_event(Step{1});
    FAIL("nothing was thrown");
  } catch (const std::runtime_error&) {
    CHECK(etude::take_origin(std::current_exception()).callback == "Thrower");
  }
  Step step{4};
  int errors = 0;
  handler.call_event_to_all(step, [&] { ++errors; });
  CHECK(errors == 1);
  CHECK(runtime(handler).get<Sum>().total == 4);
}

TEST_CASE("a writer doesn't receive an event that is raised as const") {
  Handler handler{Sum{}, {}};
  runtime(handler).add(Known{}, Negate{});
  const Step step{1};
  CHECK_THROWS_AS(handler.call_event(step), etude::ArgumentError);
}

struct HoldsAnother {
  std::shared_ptr<etude::ScopedCallback> other;
  void on(const Step&) {}
};

TEST_CASE("a callback that holds another may be removed with it") {
  Handler handler{Sum{}, {}};
  auto other = runtime(handler).add(Known{}, OnOwn{});
  runtime(handler).add(Known{}, HoldsAnother{std::make_shared<etude::ScopedCallback>(other)});
  runtime(handler).remove<HoldsAnother>();
  CHECK_FALSE(other.attached());
}

struct Counts {
  virtual ~Counts() = default;
  int heard = 0;
  virtual void on(const Step&) { ++heard; }
};
struct CountsTwice : Counts {
  void on(const Step&) override { heard += 2; }
};

TEST_CASE("a callback that would be sliced to its base is refused") {
  Handler handler{Sum{}, {}};
  CountsTwice twice;
  Counts& base = twice;
  CHECK_THROWS_AS(runtime(handler).add(Known{}, base), etude::ArgumentError);
  Counts once;
  Counts& itself = once;
  runtime(handler).add(Known{}, itself);
  runtime(handler).add(Known{}, twice);
  handler.call_event(Step{1});
  CHECK(runtime(handler).get<Counts>().heard == 1);
  CHECK(runtime(handler).get<CountsTwice>().heard == 2);
}

}  // namespace dispatch_runtime_callbacks_test
