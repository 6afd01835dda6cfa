#include "etude/data/tensors.hpp"

#include <doctest/doctest.h>

#include <array>
#include <boost/hana/define_struct.hpp>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

#include "etude/data/batch.hpp"

namespace {

using etude::Tensors;
using etude::tensors_of;
using Names = std::vector<std::string>;

struct Output {
  BOOST_HANA_DEFINE_STRUCT(Output, (torch::Tensor, logits), (std::optional<torch::Tensor>, loss),
                           (std::vector<torch::Tensor>, hidden));
};

struct WithText {
  BOOST_HANA_DEFINE_STRUCT(WithText, (torch::Tensor, logits), (std::string, text));
};

torch::Tensor number(double value) { return torch::full({}, value); }

std::vector<double> values(const Tensors& tensors) {
  std::vector<double> result;
  for (const auto& tensor : tensors) result.push_back(tensor.item<double>());
  return result;
}

template <class E, class F>
std::string message(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("tensors are described by dtype and shape as in Python") {
  CHECK(etude::describe(torch::zeros({8, 3})) == "float32 [8, 3]");
  CHECK(etude::describe(torch::zeros({}, torch::kLong)) == "int64 []");
  CHECK(etude::describe(torch::Tensor()) == "an undefined tensor");
  CHECK(etude::dtype_name(torch::kBFloat16) == "bfloat16");
  CHECK(etude::dtype_name(torch::kBool) == "bool");
  CHECK(etude::dtype_name(torch::kQInt8) == "qint8");
  CHECK(etude::describe(Tensors({torch::zeros({2}), torch::zeros({1}, torch::kHalf)}, {"a", "b"})) ==
        "a: float32 [2], b: float16 [1]");
  CHECK(etude::describe(Tensors()) == "no tensors");
}

TEST_CASE("tensors are found by position and by name") {
  const Tensors two{number(1), number(2)};
  CHECK(values(two) == std::vector<double>{1, 2});
  CHECK(two.names().empty());
  CHECK(message<etude::DataError>([&] { two[2]; }).find("tensor 2") != std::string::npos);
  CHECK(message<etude::DataError>([&] { two.at("x"); }).find("no names") != std::string::npos);

  const Tensors named({number(1), number(2)}, {"x", "y"});
  CHECK(named.at("y").item<double>() == 2);
  CHECK(named.find("z") == nullptr);
  CHECK(message<etude::DataError>([&] { named.at("z"); }) == "no tensor is named 'z'; there are: x, y");
  CHECK(message<etude::DataError>([&] { Tensors({number(1)}, {"x", "y"}); }) == "2 names for 1 tensors");
  CHECK(values(Tensors({number(3), number(4)})) == std::vector<double>{3, 4});
  CHECK(Tensors(std::vector<torch::Tensor>{number(3)}).size() == 1);
}

TEST_CASE("one tensor is used as a tensor, several are not") {
  const Tensors one = number(3);
  const torch::Tensor& tensor = one;
  CHECK(tensor.item<double>() == 3);
  CHECK(Tensors(torch::Tensor()).empty());
  CHECK_THROWS_AS(Tensors().single(), etude::DataError);
  const Tensors two{number(1), number(2)};
  CHECK(message<etude::DataError>([&] { two.single(); }) ==
        "one tensor was expected, not 2: float32 [], float32 []");
  // Braces copy; they don't go through the conversion to one tensor.
  CHECK(Tensors{two}.size() == 2);
}

TEST_CASE("a transform keeps the names") {
  const Tensors named({number(1), number(2)}, {"x", "y"});
  const auto doubled = named.transform([](const torch::Tensor& t) { return t * 2; });
  CHECK(values(doubled) == std::vector<double>{2, 4});
  CHECK(doubled.names() == Names{"x", "y"});
  CHECK(named.to(torch::kCPU)[0].is_same(named[0]));
}

TEST_CASE("pairs, tuples, arrays and vectors of tensors are flattened in order") {
  CHECK(values(tensors_of(number(1))) == std::vector<double>{1});
  CHECK(values(tensors_of(std::pair(number(1), number(2)))) == std::vector<double>{1, 2});
  CHECK(values(tensors_of(std::array{number(1), number(2)})) == std::vector<double>{1, 2});
  CHECK(values(tensors_of(std::deque{number(1), number(2)})) == std::vector<double>{1, 2});
  const auto lstm = tensors_of(std::tuple(number(1), std::tuple(number(2), number(3))));
  CHECK(values(lstm) == std::vector<double>{1, 2, 3});
  CHECK(lstm.names().empty());
}

TEST_CASE("absent tensors are left out") {
  CHECK(values(tensors_of(std::tuple(number(1), torch::Tensor()))) == std::vector<double>{1});
  CHECK(tensors_of(std::optional<torch::Tensor>()).empty());
  CHECK(values(tensors_of(torch::optional<torch::Tensor>(number(4)))) == std::vector<double>{4});
}

TEST_CASE("maps and structs name their tensors") {
  const std::map<std::string, torch::Tensor> map{{"b", number(2)}, {"a", number(1)}};
  CHECK(tensors_of(map).names() == Names{"a", "b"});
  const std::unordered_map<std::string, torch::Tensor> hashed{
      {"c", number(3)}, {"b", number(2)}, {"a", number(1)}};
  CHECK(tensors_of(hashed).names() == Names{"a", "b", "c"});
  CHECK(values(tensors_of(hashed)) == std::vector<double>{1, 2, 3});
  torch::OrderedDict<std::string, torch::Tensor> ordered;
  ordered.insert("b", number(2));
  ordered.insert("a", number(1));
  CHECK(tensors_of(ordered).names() == Names{"b", "a"});

  const Output output{number(1), std::nullopt, {number(2), number(3)}};
  CHECK(tensors_of(output).names() == Names{"logits", "hidden.0", "hidden.1"});
  CHECK(tensors_of(std::tuple(output, number(4))).names() ==
        Names{"0.logits", "0.hidden.0", "0.hidden.1", "1"});
}

TEST_CASE("TorchScript values are taken apart") {
  CHECK(values(tensors_of(c10::IValue(number(1)))) == std::vector<double>{1});
  CHECK(tensors_of(c10::IValue()).empty());
  const auto tuple =
      c10::ivalue::Tuple::create({number(1), std::vector<torch::Tensor>{number(2), number(3)}});
  CHECK(values(tensors_of(c10::IValue(tuple))) == std::vector<double>{1, 2, 3});
  c10::Dict<std::string, torch::Tensor> dict;
  dict.insert("logits", number(5));
  CHECK(tensors_of(c10::IValue(dict)).at("logits").item<double>() == 5);
  CHECK_THROWS_AS(tensors_of(c10::IValue(3.0)), etude::DataError);
}

TEST_CASE("what holds no tensors is not convertible") {
  static_assert(etude::TensorsConvertible<const torch::Tensor&>);
  static_assert(etude::TensorsConvertible<Tensors>);
  static_assert(etude::TensorsConvertible<Output>);
  static_assert(!etude::TensorsConvertible<double>);
  static_assert(!etude::TensorsConvertible<std::string>);
  static_assert(!etude::TensorsConvertible<std::vector<int>>);
  static_assert(!etude::TensorsConvertible<std::tuple<torch::Tensor, int>>);
  static_assert(!etude::TensorsConvertible<std::filesystem::path>);
  static_assert(!etude::TensorsConvertible<WithText>);
}

TEST_CASE("a batch counts its examples and refuses tensors that disagree") {
  const auto batch = etude::make_batch({torch::zeros({4, 2}), torch::zeros({4})}, torch::zeros({4}));
  CHECK(batch.size == 4);
  CHECK(message<etude::DataError>([] {
          etude::make_batch(torch::zeros({4, 2}), torch::zeros({3}));
        }).find("inputs: float32 [4, 2]; labels: float32 [3]") != std::string::npos);
  CHECK_THROWS_AS(etude::make_batch({}, torch::zeros({3})), etude::DataError);
  CHECK_THROWS_AS(etude::make_batch(torch::zeros({}), {}), etude::DataError);
}

}  // namespace
