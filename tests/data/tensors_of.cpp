#include "etude/data/tensors_of.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>

#include <array>
#include <boost/hana/define_struct.hpp>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_map>

namespace data_tensors_of_test {

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

TEST_CASE("a type without tensors isn't convertible") {
  CHECK(etude::TensorsConvertible<const torch::Tensor&>);
  CHECK(etude::TensorsConvertible<Tensors>);
  CHECK(etude::TensorsConvertible<Output>);
  CHECK_FALSE(etude::TensorsConvertible<double>);
  CHECK_FALSE(etude::TensorsConvertible<std::string>);
  CHECK_FALSE(etude::TensorsConvertible<std::vector<int>>);
  CHECK_FALSE(etude::TensorsConvertible<std::tuple<torch::Tensor, int>>);
  CHECK_FALSE(etude::TensorsConvertible<std::filesystem::path>);
  CHECK_FALSE(etude::TensorsConvertible<WithText>);
}

}  // namespace data_tensors_of_test
