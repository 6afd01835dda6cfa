#include "etude/study/remote_study.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/base/sigpipe.hpp"
#include "etude/reflect/json_parser.hpp"

namespace study_remote_study_test {

using etude::RemoteStudy;
using Json = nlohmann::ordered_json;
const std::vector<etude::StudyDirection> minimize{etude::StudyDirection::minimize};

/// Returns the given answers in turn and records the requests.
struct Answers {
  std::vector<std::string> answers;
  std::vector<std::string> requests = {};
  RemoteStudy study() {
    return RemoteStudy([this](const Json& request) {
      requests.push_back(request.dump());
      return etude::parse_json(answers.at(requests.size() - 1));
    });
  }
};

TEST_CASE("a trial asks for each value once, reports, is pruned, and tells how it ended") {
  Answers remote{{R"({"number":3})", R"({"value":0.5})", R"({"value":"sgd"})", R"({"prune":false})",
                  R"({"prune":true})", "{}", "{}", R"({"number":4})", "{}", R"({"number":null})"}};
  auto study = remote.study();
  auto trial = study.ask(minimize);
  CHECK(trial->number() == 3);
  CHECK(trial->suggest_float("lr", {.low = 0, .high = 1}) == 0.5);
  CHECK(trial->suggest_float("lr", {.low = 0, .high = 1}) == 0.5);
  CHECK(trial->suggest_categorical("optim", std::vector<std::string>{"adam", "sgd"}) == "sgd");
  CHECK_FALSE(trial->should_prune());
  trial->report(0.25, 10);
  CHECK_FALSE(trial->should_prune());
  trial->report(std::numeric_limits<double>::infinity(), 20);
  CHECK(trial->should_prune());
  trial->set_user_attr("note", "text");
  study.tell(*trial, etude::TrialState::pruned);
  auto other = study.ask(minimize);
  study.tell(*other, {1.5, 2});
  CHECK(study.ask(minimize) == nullptr);
  const std::vector<std::string> expected{
      R"({"ask":{"directions":["minimize"]}})",
      R"({"suggest":{"number":3,"name":"lr","distribution":{"name":"FloatDistribution","attributes":{"step":null,"low":0.0,"high":1.0,"log":false}}}})",
      R"({"suggest":{"number":3,"name":"optim","distribution":{"name":"CategoricalDistribution","attributes":{"choices":["adam","sgd"]}}}})",
      R"({"report":{"number":3,"step":10,"value":0.25}})",
      R"({"report":{"number":3,"step":20,"value":"Infinity"}})",
      R"({"set_user_attr":{"number":3,"name":"note","value":"text"}})",
      R"({"tell":{"number":3,"state":"pruned","values":null}})",
      R"({"ask":{"directions":["minimize"]}})",
      R"({"tell":{"number":4,"state":"complete","values":[1.5,2.0]}})",
      R"({"ask":{"directions":["minimize"]}})"};
  REQUIRE(remote.requests.size() == expected.size());
  // Compared as JSON, in which the order of members means nothing.
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(nlohmann::json::parse(remote.requests[i]) == nlohmann::json::parse(expected[i]));
  const auto frozen = trial->frozen();
  CHECK(frozen.param("optim") == "sgd");
  CHECK(frozen.intermediate_values.at(10) == 0.25);
  CHECK(trial->params().size() == 2);
}

TEST_CASE("answers are checked") {
  const auto fault = [](const std::string& answer) {
    Answers remote{{R"({"number":0})", answer}};
    auto study = remote.study();
    auto trial = study.ask(minimize);
    return toy::fault_of<etude::CommunicationError>(
        [&] { trial->suggest_float("lr", {.low = 0, .high = 1}); });
  };
  CHECK(toy::contains(fault(R"({"value":2})"), "lr is 2: must be from 0 to 1"));
  CHECK(toy::contains(fault(R"({"value":"x"})"), R"(lr is "x": must be from 0 to 1)"));
  CHECK(fault("{}").starts_with("the study's program answers {} to {\"suggest\":"));
  CHECK(fault("[]").starts_with("the study's program answers [] to "));
  Answers refuses{{R"({"error":"no such study"})"}};
  CHECK(toy::fault_of<etude::Error>([&] { refuses.study().ask(minimize); }) ==
        "the study's program answers: no such study");
}

/// Both ends of a pipe.
struct Pipe {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    close(0);
    close(1);
  }
  void close(std::size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  void write(const std::string& text) {
    REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  std::array<int, 2> ends;
};

TEST_CASE("requests and answers are lines, which may come in parts and several at once") {
  Pipe answers, requests;
  auto exchange = etude::exchange_lines(answers.ends[0], requests.ends[1]);
  std::thread slow([&] {
    answers.write("{\"number\"");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    answers.write(":1}\n{\"second\":2}\n");
  });
  CHECK(exchange({{"ask", 1}}).dump() == R"({"number":1})");
  slow.join();
  CHECK(exchange({{"ask", 2}}).dump() == R"({"second":2})");
  std::array<char, 100> buffer;
  const auto size = ::read(requests.ends[0], buffer.data(), buffer.size());
  CHECK(std::string(buffer.data(), static_cast<std::size_t>(size)) == "{\"ask\":1}\n{\"ask\":2}\n");
  answers.write("no json\n");
  CHECK(toy::fault_of<etude::CommunicationError>([&] {
          exchange({});
        }).starts_with("the study's program answers 'no json': "));
  answers.close(1);
  CHECK(toy::fault_of<etude::CommunicationError>([&] { exchange({}); }) ==
        "the study's program gives no answers: it has ended");
  requests.close(0);
  const etude::detail::WithoutSigpipe without;
  CHECK(toy::fault_of<etude::CommunicationError>([&] {
          exchange({});
        }).starts_with("the study's program takes no requests: "));
}

}  // namespace study_remote_study_test
