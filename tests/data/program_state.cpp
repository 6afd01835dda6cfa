#include "etude/data/program_state.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/enum.hpp"

namespace data_program_state_test {

ETUDE_ENUM(Mode, explore, exploit);
enum class Plain : std::uint8_t { one = 1, two = 2 };

struct Place {
  ETUDE_STRUCT(Place, (torch::Tensor, at, "where"), (std::int64_t, steps, "taken"));
  int undeclared = 0;
};
using Places = std::vector<Place>;

struct Counting {
  std::int64_t count = 0;
  nlohmann::json state() const { return {{"count", count}}; }
  void load_state(const nlohmann::json& state) { count = state.at("count"); }
};

struct Filter {
  std::vector<double> mean;
  using State = std::pair<std::int64_t, std::vector<double>>;
  State state() const { return {7, mean}; }
  void load_state(const State& state) { mean = state.second; }
};

struct Shuffled {
  torch::Tensor rows;
  etude::DatasetState state() const {
    etude::DatasetState state{.values = {{"k", 3}}};
    state.tensors["rows"] = rows;
    return state;
  }
  void load_state(const etude::DatasetState& state) { rows = state.tensors.at("rows"); }
};

struct Everything {
  bool flag = false;
  std::int8_t small = 0;
  std::uint64_t large = 0;
  float single = 0;
  double number = 0;
  std::string name, bytes;
  Mode mode = Mode::explore;
  Plain plain = Plain::one;
  torch::Tensor tensor, undefined;
  torch::Generator generator = torch::make_generator<at::CPUGeneratorImpl>(1);
  std::mt19937_64 engine{1};
  std::normal_distribution<double> normal;
  std::vector<float> floats;
  std::vector<std::uint32_t> words;
  std::vector<bool> bits;
  std::deque<Place> places;
  std::list<std::string> names;
  std::array<double, 3> fixed{};
  std::map<std::string, torch::Tensor> by_name;
  std::unordered_map<std::int64_t, std::vector<std::string>> by_number;
  std::set<std::pair<int, int>> visited;
  std::optional<torch::Tensor> maybe;
  std::optional<int> none = 4;
  std::tuple<int, std::string, Mode> mixed;
  nlohmann::json json;
  Counting counting;
  Filter filter;
  Shuffled shuffled;

  etude::ProgramState state() {
    return {
        {"flag", flag},       {"small", small},         {"large", large},         {"single", single},
        {"number", number},   {"name", name},           {"bytes", bytes},         {"mode", mode},
        {"plain", plain},     {"tensor", tensor},       {"undefined", undefined}, {"generator", generator},
        {"engine", engine},   {"normal", normal},       {"floats", floats},       {"words", words},
        {"bits", bits},       {"places", places},       {"names", names},         {"fixed", fixed},
        {"by_name", by_name}, {"by_number", by_number}, {"visited", visited},     {"maybe", maybe},
        {"none", none},       {"mixed", mixed},         {"json", json},           {"counting", counting},
        {"filter", filter},   {"shuffled", shuffled}};
  }
};

/// Saves variables and converts them as a checkpoint does: JSON to text and back, and tensors to copies.
etude::SavedVariables written(const etude::ProgramState& state) {
  auto saved = etude::save_variables(state);
  saved.values = etude::parse_json(saved.values.dump());
  for (auto& [name, tensor] : saved.tensors) tensor = tensor.clone();
  return saved;
}

TEST_CASE("variables of all kinds come back exactly") {
  Everything then;
  then.flag = true;
  then.small = -128;
  then.large = std::numeric_limits<std::uint64_t>::max();
  then.single = 0.1F;
  then.number = -std::numeric_limits<double>::infinity();
  then.name = "é\n\"";
  then.bytes = std::string("\xff\x00\xfe", 3);
  then.mode = Mode::exploit;
  then.plain = Plain::two;
  then.tensor = torch::tensor({1.5, 0.1, -2.0});
  then.generator.set_current_seed(99);
  const auto drawn_before = torch::rand({5}, then.generator);
  then.engine.discard(1000);
  then.normal(then.engine);  // the distribution keeps the second number of a pair
  for (int i = 0; i < 100; ++i) then.floats.push_back(0.1F * static_cast<float>(i));
  then.words = std::vector<std::uint32_t>(100, 0xFFFFFFFF);
  then.bits = {true, false, true};
  then.places = {{.at = torch::tensor({3}), .steps = 4}, {.at = {}, .steps = 5}};
  then.names = {"a", "b"};
  then.fixed = {0.1, 0.2, 0.3};
  then.by_name = {{"a.b", torch::tensor({1})}, {"a", torch::tensor({2})}};
  then.by_number = {{-3, {"x", "y"}}, {8, {}}};
  then.visited = {{1, 2}, {0, 5}};
  then.maybe = torch::tensor({6});
  then.none.reset();
  then.mixed = {4, "four", Mode::exploit};
  then.json = {{"a", {1, 2}}};
  then.counting.count = 17;
  then.filter.mean = std::vector<double>(70, 0.7);
  then.shuffled.rows = torch::arange(4);

  const auto saved = written(then.state());
  Everything now;
  etude::load_variables(now.state(), saved);

  CHECK(now.flag);
  CHECK(now.small == -128);
  CHECK(now.large == 18446744073709551615ULL);
  CHECK(now.single == 0.1F);
  CHECK(now.number == -std::numeric_limits<double>::infinity());
  CHECK(now.name == "é\n\"");
  CHECK(now.bytes == std::string("\xff\x00\xfe", 3));
  CHECK(now.mode == Mode::exploit);
  CHECK(now.plain == Plain::two);
  CHECK(torch::equal(now.tensor, torch::tensor({1.5, 0.1, -2.0})));
  CHECK(!now.undefined.defined());
  CHECK(torch::equal(torch::rand({5}, now.generator), torch::rand({5}, then.generator)));
  CHECK(now.normal(now.engine) == then.normal(then.engine));
  CHECK(now.engine() == then.engine());
  CHECK(now.floats == then.floats);
  CHECK(now.words == std::vector<std::uint32_t>(100, 0xFFFFFFFF));
  CHECK(now.bits == std::vector<bool>{true, false, true});
  REQUIRE(now.places.size() == 2);
  CHECK(now.places[0].at.item<std::int64_t>() == 3);
  CHECK(now.places[1].steps == 5);
  CHECK(!now.places[1].at.defined());
  CHECK(now.names == std::list<std::string>{"a", "b"});
  CHECK(now.fixed == std::array<double, 3>{0.1, 0.2, 0.3});
  CHECK(now.by_name.at("a.b").item<std::int64_t>() == 1);
  CHECK(now.by_name.at("a").item<std::int64_t>() == 2);
  CHECK(now.by_number == then.by_number);
  CHECK(now.visited == std::set<std::pair<int, int>>{{1, 2}, {0, 5}});
  CHECK(now.maybe->item<std::int64_t>() == 6);
  CHECK(!now.none);
  CHECK(now.mixed == std::tuple(4, std::string("four"), Mode::exploit));
  CHECK(now.json == nlohmann::json{{"a", {1, 2}}});
  CHECK(now.counting.count == 17);
  CHECK(now.filter.mean == std::vector<double>(70, 0.7));
  CHECK(torch::equal(now.shuffled.rows, torch::arange(4)));
}

TEST_CASE("saving copies no tensor and no long list, and loading gives memory of its own") {
  auto tensor = torch::zeros({1000});
  std::vector<double> numbers(1000, 0.5);
  const etude::ProgramState state{{"tensor", tensor}, {"numbers", numbers}};
  const auto saved = etude::save_variables(state);
  REQUIRE(saved.tensors.size() == 2);
  CHECK(saved.tensors[0].second.data_ptr() == tensor.data_ptr());
  CHECK(saved.tensors[1].second.data_ptr() == numbers.data());
  etude::load_variables(state, saved);
  tensor.fill_(1);
  CHECK(saved.tensors[0].second.sum().item<double>() == 0);
}

TEST_CASE("members that a struct doesn't declare stay, and elements that are there keep theirs") {
  Places places{{.at = torch::tensor({1}), .steps = 1, .undeclared = 5}};
  const auto saved = written({{"places", places}});
  places[0].steps = 9;
  places.push_back({});
  etude::load_variables({{"places", places}}, saved);
  REQUIRE(places.size() == 1);
  CHECK(places[0].steps == 1);
  CHECK(places[0].undeclared == 5);
}

TEST_CASE("names that dots make alike keep their tensors apart") {
  std::map<std::string, std::map<std::string, torch::Tensor>> nested;
  nested["x"]["y"] = torch::tensor({1});
  nested["z"]["y"] = torch::tensor({2});
  auto alike = torch::tensor({3});
  const auto saved = written({{"nested", nested}, {"nested[0][0]", alike}});
  nested.clear();
  alike = torch::Tensor();
  etude::load_variables({{"nested", nested}, {"nested[0][0]", alike}}, saved);
  CHECK(nested["x"]["y"].item<std::int64_t>() == 1);
  CHECK(nested["z"]["y"].item<std::int64_t>() == 2);
  CHECK(alike.item<std::int64_t>() == 3);
}

TEST_CASE("what doesn't fit is named, all of it, and changes nothing") {
  Place place{.at = torch::zeros({2, 3}), .steps = 4};
  std::int64_t count = 7;
  const auto saved = written({{"place", place}, {"count", count}});
  const auto fault = [&](const etude::ProgramState& state) {
    return toy::fault_of([&] { etude::load_variables(state, saved); });
  };
  place.steps = 5;
  count = 8;
  place.at = torch::zeros({2, 4});
  CHECK(
      fault({{"place", place}, {"count", count}}) ==
      "program_state: place.at is float32 [2, 3] in the checkpoint: must be float32 [2, 4], or undefined or "
      "empty to take any");
  CHECK(place.steps == 5);
  CHECK(count == 8);
  place.at = torch::zeros({0}, torch::kLong);
  CHECK(fault({{"place", place}, {"count", count}}) ==
        "program_state: place.at is float32 [2, 3] in the checkpoint: must be int64 [0]");
  place.at = torch::zeros({0});
  std::string text;
  CHECK(fault({{"place", place}, {"count", text}}) ==
        "program_state: count must be a tensor of the checkpoint");
  std::int64_t number = 0;
  CHECK(fault({{"place", place}, {"number", number}}) ==
        "program_state: number is missing in the checkpoint; count is in the checkpoint, and the program has "
        "no variable of that name");
  CHECK(place.steps == 5);
  etude::load_variables({{"place", place}, {"count", count}}, saved);
  CHECK(place.steps == 4);
  CHECK(place.at.sizes() == std::vector<std::int64_t>{2, 3});
}

TEST_CASE("a load_state that throws is named") {
  struct Throws {
    nlohmann::json state() const { return 1; }
    void load_state(const nlohmann::json&) { throw std::runtime_error("broken"); }
  } throws;
  const auto saved = written({{"throws", throws}});
  CHECK(toy::fault_of([&] {
          etude::load_variables({{"throws", throws}}, saved);
        }) == "throws: its state can't be loaded: broken");
}

TEST_CASE("a tensor keeps its requires_grad, and an engine refuses what is none") {
  auto tensor = torch::ones({2}).requires_grad_();
  const auto saved = written({{"tensor", tensor}});
  etude::load_variables({{"tensor", tensor}}, saved);
  CHECK(tensor.requires_grad());
  std::mt19937 engine;
  etude::SavedVariables text;
  text.values["engine"] = "words";
  CHECK(toy::fault_of([&] {
          etude::load_variables({{"engine", engine}}, text);
        }) == "program_state: engine must be the state of an engine like this one");
}

}  // namespace data_program_state_test
