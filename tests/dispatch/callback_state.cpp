#include "etude/dispatch/callback_state.hpp"

#include <doctest/doctest.h>

#include "etude/dispatch/filters.hpp"

namespace dispatch_callback_state_test {

using Json = nlohmann::ordered_json;

struct Counter {
  ETUDE_STRUCT(Counter, (std::int64_t, every, "a setting", 10), (double, scale, "a setting", 1.0),
               (std::int64_t, count, "what it has counted", 0), (std::vector<double>, seen, "values"));
};

namespace next_version {
struct Counter {
  ETUDE_STRUCT(Counter, (std::int64_t, every, "a setting", 10), (std::int64_t, fresh, "of this version", 5));
};
}  // namespace next_version

struct Split {
  ETUDE_STRUCT(Split, (std::int64_t, every, "a setting", 10));
  struct State {
    ETUDE_STRUCT(State, (std::int64_t, count, "what it has counted", 0),
                 (double, best, "the best value", 0.5));
  };
  State state = {};
};

struct OnlyState {
  struct State {
    ETUDE_STRUCT(State, (std::int64_t, count, "what it has counted", 0));
  };
  State state = {};
};

struct Own {
  double value = 0;
  Json state() const { return {{"value", value}}; }
  void load_state(const Json& state) { value = state.at("value").get<double>(); }
};

template <class Callback>
etude::StateReport load(const Json& saved, Callback& callback) {
  etude::StateReport report;
  etude::load_states(saved, {etude::CallbackState(callback)}, report);
  return report;
}

Json counted() {
  Counter counter{.every = 3};
  const etude::CallbackState state(counter);
  counter.count = 7;
  counter.seen = {0.1, 0.2};
  return etude::save_states({state});
}

TEST_CASE("args are a callback's initial values, attributes the ones that changed since") {
  CHECK(counted() == Json::parse(R"({"Counter": {"args": {"every": 3},
                                     "attributes": {"count": 7, "seen": [0.1, 0.2]}}})"));
}

TEST_CASE("a callback with the same initial values continues where the other was") {
  Counter counter{.every = 3};
  const auto report = load(counted(), counter);
  CHECK(counter.every == 3);
  CHECK(counter.count == 7);
  CHECK(counter.seen == std::vector{0.1, 0.2});
  CHECK(report.problems.empty());
  CHECK(report.differences.empty());
}

TEST_CASE("a new value of a setting wins, and is reported") {
  Counter counter{.every = 5, .scale = 2};
  const auto report = load(counted(), counter);
  CHECK(counter.every == 5);
  CHECK(counter.scale == 2);
  CHECK(counter.count == 7);
  CHECK(report.differences == std::vector<std::string>{"Counter.every: 3 -> 5", "Counter.scale: 1.0 -> 2.0"});
}

TEST_CASE("state that is saved again after a resume is complete") {
  Counter counter{.every = 3};
  const etude::CallbackState state(counter);
  etude::StateReport report;
  etude::load_states(counted(), {state}, report);
  ++counter.count;
  CHECK(etude::save_states({state})["Counter"]["attributes"] ==
        Json::parse(R"({"count": 8, "seen": [0.1, 0.2]})"));
}

TEST_CASE("each of two callbacks with one key gets its own state, in their order") {
  Counter a{.every = 1}, b{.every = 2};
  const std::vector<etude::CallbackState> before{etude::CallbackState(a), etude::CallbackState(b)};
  a.count = 10;
  b.count = 20;
  const auto saved = etude::save_states(before);
  CHECK(saved["Counter"].size() == 2);
  Counter c{.every = 1}, d{.every = 2};
  const std::vector<etude::CallbackState> after{etude::CallbackState(c), etude::CallbackState(d)};
  etude::StateReport report;
  etude::load_states(saved, after, report);
  CHECK(c.count == 10);
  CHECK(d.count == 20);
  CHECK(report.problems.empty());
}

TEST_CASE("missing or leftover state is reported by name") {
  Own own{3};
  etude::StateReport report = load(counted(), own);
  CHECK(own.value == 3);
  CHECK(report.problems == std::vector<std::string>{"the state of Own is missing: it starts from scratch",
                                                    "the state of a Counter has no matching callback"});
  next_version::Counter renamed;
  report = load(counted(), renamed);
  CHECK(renamed.every == 10);  // the saved one was constructed with a different value
  CHECK(renamed.fresh == 5);
  CHECK(report.problems == std::vector<std::string>{"Counter no longer has a member count",
                                                    "Counter no longer has a member seen"});
}

TEST_CASE("state of another form only restores the fields that fit") {
  Counter counter;
  auto report = load(
      Json::parse(R"({"Counter": {"args": {}, "attributes": {"count": "seven", "seen": [1]}}})"), counter);
  CHECK(counter.count == 0);
  CHECK(counter.seen == std::vector{1.0});
  CHECK(report.problems == std::vector<std::string>{"Counter.count is \"seven\": must be a whole number"});
  for (const char* text :
       {"[]", "7", R"({"Counter": 7})", R"({"Counter": {"args": []}})", R"({"Counter": []})"})
    CHECK(load(Json::parse(text), counter).problems.size() == 1);
  Own own{3};
  report = load(Json::parse(R"({"Own": {"args": {}, "attributes": {}}})"), own);
  CHECK(own.value == 3);
  CHECK(report.problems.size() == 1);
}

TEST_CASE("the members of a callback's state are saved as attributes, apart from its options") {
  Split split{.every = 3};
  const etude::CallbackState state(split);
  split.state.count = 7;
  const auto saved = etude::save_states({state});
  CHECK(saved == Json::parse(R"({"Split": {"args": {"every": 3}, "attributes": {"count": 7}}})"));

  Split resumed{.every = 4};
  const auto report = load(saved, resumed);
  CHECK(resumed.every == 4);
  CHECK(resumed.state.count == 7);
  CHECK(resumed.state.best == 0.5);
  CHECK(report.problems.empty());
  CHECK(report.differences == std::vector<std::string>{"Split.every: 3 -> 4"});
  CHECK(etude::field_names<Split>() == std::vector<std::string_view>{"every"});

  OnlyState only;
  CHECK(
      load(Json::parse(R"({"OnlyState": {"args": {}, "attributes": {"count": 2}}})"), only).problems.empty());
  CHECK(only.state.count == 2);
}

TEST_CASE("a callback may define its own state; an inline one's is its count") {
  Own own{3};
  const auto saved = etude::save_states({etude::CallbackState(own)});
  Own other;
  CHECK(load(saved, other).problems.empty());
  CHECK(other.value == 3);

  struct Ping {};
  int calls = 0;
  auto ping = etude::on<Ping>().every(3).call([&](const Ping&) { ++calls; });
  ping.on(Ping{});
  ping.on(Ping{});
  const auto counted = etude::save_states({etude::CallbackState(ping)});
  auto resumed = etude::on<Ping>().every(3).call([&](const Ping&) { ++calls; });
  CHECK(load(counted, resumed).problems.empty());
  resumed.on(Ping{});
  CHECK(calls == 1);
}

}  // namespace dispatch_callback_state_test
