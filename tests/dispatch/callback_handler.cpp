#include "etude/dispatch/callback_handler.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace dispatch_callback_handler_test {

struct Heard {
  std::vector<std::string>& by;
};
struct Number {
  int value;
};
struct Unheard {};

template <char Name>
struct Listener {
  void on(const Heard& e) { e.by.push_back(std::string(1, Name)); }
};

TEST_CASE("callbacks receive an event in the order of the list") {
  std::vector<std::string> by;
  etude::CallbackHandler handler{Listener<'b'>{}, Listener<'a'>{}, Listener<'c'>{}};
  handler.call_event(Heard{by});
  CHECK(by == std::vector<std::string>{"b", "a", "c"});
}

struct Twice {
  void on(Number& e) { e.value *= 2; }
};
struct Keep {
  int seen = 0;
  void on(const Number& e) { seen = e.value; }
};

template <std::size_t... I>
int heard_by_all(std::index_sequence<I...>) {
  etude::CallbackHandler handler{Listener<static_cast<char>(I)>{}...};
  std::vector<std::string> by;
  handler.call_event(Heard{by});
  return static_cast<int>(by.size());
}

TEST_CASE("a compiler handles a hundred callbacks") {
  CHECK(heard_by_all(std::make_index_sequence<100>()) == 100);
}

TEST_CASE("later callbacks and the caller see a writer's changes to an event") {
  etude::CallbackHandler handler{Twice{}, Keep{}};
  Number event{21};
  handler.call_event(event);
  CHECK(event.value == 42);
  CHECK(handler.callbacks()[boost::hana::size_c<1>].seen == 42);
}

TEST_CASE("the callbacks that handle an event are known at compile time") {
  using Handler = etude::CallbackHandler<Twice, Listener<'a'>>;
  CHECK(Handler::handles<Number>);
  CHECK(Handler::handles<Heard>);
  CHECK_FALSE(Handler::handles<Unheard>);
  CHECK_FALSE(etude::CallbackHandler<>::handles<Number>);
}

struct Grow {
  constexpr void on(Number& e) const { e.value *= 2; }
};

TEST_CASE("a handler works at compile time") {
  constexpr int grown = [] {
    etude::CallbackHandler handler{Grow{}};
    Number event{4};
    handler.call_event(event);
    return event.value;
  }();
  CHECK(grown == 8);
}

struct Shared {
  static inline int heard = 0;
  static inline auto on = [](const Number& e) { heard = e.value; };
};

TEST_CASE("a member that is called like a function is a handler") {
  struct Held {
    std::function<void(const Number&)> on;
  };
  struct Writes {
    void (*on)(Number&) = [](Number& e) { ++e.value; };
  };
  int heard = 0;
  etude::CallbackHandler handler{Writes{}, Held{[&](const Number& e) { heard = e.value; }}, Shared{}};
  handler.call_event(Number{1});
  CHECK(heard == 2);
  CHECK(Shared::heard == 2);
  CHECK(etude::Writes<Writes, Number>);
  CHECK(etude::CallbackChecks<etude::events<Unheard>, false, Held>::passed());
}

struct MoveOnly {
  std::unique_ptr<int> count = std::make_unique<int>(0);
  void on(const Number& e) { *count += e.value; }
};

TEST_CASE("callbacks need only be movable") {
  etude::CallbackHandler handler{MoveOnly{}};
  handler.call_event(Number{3});
  CHECK(*handler.callbacks()[boost::hana::size_c<0>].count == 3);
}

struct Thrower {
  void on(const Number& e) {
    if (e.value < 0) throw std::out_of_range("negative");
  }
};

TEST_CASE("an exception propagates as it was thrown, and its callback and event are recorded") {
  etude::CallbackHandler handler{Thrower{}, Keep{}};
  try {
    handler.call_event(Number{-1});
    FAIL("nothing was thrown");
  } catch (const std::out_of_range& error) {
    CHECK(std::string(error.what()) == "negative");
    const auto origin = etude::take_origin(std::current_exception());
    CHECK(origin.callback == "Thrower");
    CHECK(origin.event == "Number");
    CHECK(handler.callbacks()[boost::hana::size_c<1>].seen == 0);
  }
}

TEST_CASE("an exception that no callback threw has no origin, even after one that did") {
  etude::CallbackHandler handler{Thrower{}};
  CHECK_THROWS(handler.call_event(Number{-1}));
  try {
    throw 1;
  } catch (int) {
    const auto origin = etude::take_origin(std::current_exception());
    CHECK(origin.callback.empty());
    CHECK(origin.event.empty());
  }
}

struct Outer {
  etude::CallbackHandler<Thrower>* inner;
  void on(const Heard&) { inner->call_event(Number{-1}); }
};

TEST_CASE("the innermost of nested events is the origin") {
  etude::CallbackHandler<Thrower> inner{Thrower{}};
  etude::CallbackHandler outer{Outer{&inner}};
  std::vector<std::string> by;
  try {
    outer.call_event(Heard{by});
    FAIL("nothing was thrown");
  } catch (const std::out_of_range&) {
    CHECK(etude::take_origin(std::current_exception()).callback == "Thrower");
  }
}

TEST_CASE("an event that is raised to all reaches the callbacks after one that throws") {
  etude::CallbackHandler handler{Thrower{}, Keep{}};
  int errors = 0;
  Number event{-5};
  handler.call_event_to_all(event, [&] { ++errors; });
  CHECK(errors == 1);
  CHECK(handler.callbacks()[boost::hana::size_c<1>].seen == -5);
}

}  // namespace dispatch_callback_handler_test
