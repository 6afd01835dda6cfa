#include "etude/data/tensors.hpp"

#include <doctest/doctest.h>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"

namespace data_tensors_test {

using etude::Tensors;
using toy::fault_of;
using Names = std::vector<std::string>;

torch::Tensor number(double value) { return torch::full({}, value); }

std::vector<double> values(const Tensors& tensors) {
  std::vector<double> result;
  for (const auto& tensor : tensors) result.push_back(tensor.item<double>());
  return result;
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
  CHECK(fault_of<etude::DataError>([&] { two[2]; }).find("tensor 2") != std::string::npos);
  CHECK(fault_of<etude::DataError>([&] { two.at("x"); }).find("no names") != std::string::npos);

  const Tensors named({number(1), number(2)}, {"x", "y"});
  CHECK(named.at("y").item<double>() == 2);
  CHECK(named.find("z") == nullptr);
  CHECK(fault_of<etude::DataError>([&] { named.at("z"); }) == "no tensor is named 'z'; there are: x, y");
  CHECK(fault_of<etude::DataError>([&] { Tensors({number(1)}, {"x", "y"}); }) == "2 names for 1 tensors");
  CHECK(values(Tensors({number(3), number(4)})) == std::vector<double>{3, 4});
  CHECK(Tensors(std::vector<torch::Tensor>{number(3)}).size() == 1);
}

TEST_CASE("a single tensor converts to a tensor, several don't") {
  const Tensors one = number(3);
  const torch::Tensor& tensor = one;
  CHECK(tensor.item<double>() == 3);
  CHECK(Tensors(torch::Tensor()).empty());
  CHECK_THROWS_AS(Tensors().single(), etude::DataError);
  const Tensors two{number(1), number(2)};
  CHECK(fault_of<etude::DataError>([&] { two.single(); }) ==
        "one tensor was expected, not 2: float32 [], float32 []");
  // Braces copy; they don't go through the conversion to one tensor.
  CHECK(Tensors{two}.size() == 2);
}

TEST_CASE("a transform keeps tensor names") {
  const Tensors named({number(1), number(2)}, {"x", "y"});
  const auto doubled = named.transform([](const torch::Tensor& t) { return t * 2; });
  CHECK(values(doubled) == std::vector<double>{2, 4});
  CHECK(doubled.names() == Names{"x", "y"});
  CHECK(named.to(torch::kCPU)[0].is_same(named[0]));
}

TEST_CASE("a batch counts its examples and refuses tensors that disagree") {
  const auto batch = etude::make_batch({torch::zeros({4, 2}), torch::zeros({4})}, torch::zeros({4}));
  CHECK(batch.size == 4);
  CHECK(fault_of<etude::DataError>([] {
          etude::make_batch(torch::zeros({4, 2}), torch::zeros({3}));
        }).find("inputs: float32 [4, 2]; labels: float32 [3]") != std::string::npos);
  CHECK_THROWS_AS(etude::make_batch({}, torch::zeros({3})), etude::DataError);
  CHECK_THROWS_AS(etude::make_batch(torch::zeros({}), {}), etude::DataError);
}

TEST_CASE("named tensors are written as in Python, and found by name") {
  const auto a = torch::tensor({1.0F}), b = torch::tensor({2.0F});
  const Tensors tensors{{"images", a}, {"kl", b}};
  CHECK(tensors.names() == std::vector<std::string>{"images", "kl"});
  CHECK(tensors["kl"].is_same(b));
  CHECK(tensors[0].is_same(a));
  CHECK_THROWS_WITH_AS(static_cast<void>(tensors["k1"]), "no tensor is named 'k1'; there are: images, kl",
                       etude::DataError);
  CHECK_THROWS_WITH_AS(static_cast<void>(etude::Tensors{{"kl", a}, {"kl", b}}),
                       "two tensors are named 'kl': names must differ", etude::DataError);
}

}  // namespace data_tensors_test
