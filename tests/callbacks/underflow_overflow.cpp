#include "etude/callbacks/underflow_overflow.hpp"

#include <ATen/record_function.h>
#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_underflow_overflow_test {

/// Passes the line's output through a function of the test.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::function<torch::Tensor(torch::Tensor)> through) : through_(std::move(through)) {}
  torch::Tensor forward(torch::Tensor x) { return through_(line->forward(x)); }
  toy::Line line = register_module("line", toy::Line());

 private:
  std::function<torch::Tensor(torch::Tensor)> through_;
};

etude::TrainerOptions options(std::function<torch::Tensor(torch::Tensor)> through) {
  auto result = toy::options(toy::arguments(), 4);
  result.model = std::make_shared<NetImpl>(std::move(through));
  return result;
}

/// The training's error; empty if it succeeds.
std::string failure(const etude::TrainerOptions& options,
                    etude::DebugUnderflowOverflowCallback callback = {}) {
  etude::Trainer<etude::DebugUnderflowOverflowCallback> trainer(options, std::move(callback));
  try {
    trainer.train();
  } catch (const etude::Error& error) {
    CHECK_FALSE(at::hasCallbacks());
    return error.what();
  }
  return "";
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("the first operator of a forward pass that returns inf or NaN is named, with its inputs") {
  const auto inf = failure(options([](torch::Tensor y) { return (y + 100).exp() * 2; }));
  CHECK(inf.starts_with("in batch 0, aten::exp made inf;"));
  CHECK(inf.find("1.00e+02   1.00e+02  input[0] float32 [1, 1]") != inf.npos);
  CHECK(inf.find("inf        inf  output[0] float32 [1, 1]") != inf.npos);
  CHECK(inf.find("aten::add") < inf.find("aten::exp", inf.find('\n')));
  // The product with 2 comes after exp, so it isn't listed.
  CHECK(inf.rfind("aten::mul") < inf.rfind("aten::exp"));
  const auto nan = failure(options([](torch::Tensor y) { return (y - 1).sqrt(); }));
  CHECK(nan.starts_with("in batch 0, aten::sqrt made NaN;"));
}

TEST_CASE("non-finite gradients are found too, and no weight is touched") {
  // At 0, sqrt(y^2) is 0 and its gradient 0 / 0.
  const auto made = options([](torch::Tensor y) { return (y * y).sqrt(); });
  etude::Trainer<etude::DebugUnderflowOverflowCallback> trainer(made);
  CHECK_THROWS_AS(trainer.train(), etude::Error);
  CHECK(trainer.model().parameters().at(0).item<float>() == 0);
  CHECK(trainer.state().global_step == 0);
  const auto text = failure(made);
  CHECK(text.starts_with("in batch 0, aten::"));
  CHECK(text.find("made ") < text.find(';'));
}

TEST_CASE("batches are counted, and frames are kept up to their limit") {
  int calls = 0;
  const auto late = options([&](torch::Tensor y) {
    return calls++ < 2 ? y : (y - y).cos().acos().sin().log();  // acos(1) is 0
  });
  const auto text = failure(late, {.max_frames_to_save = 3});
  CHECK(text.starts_with("in batch 2, aten::log made inf;"));
  CHECK(count(text, "abs min") == 3);
  CHECK(text.find("aten::cos") == text.npos);
  CHECK(text.find("aten::acos") != text.npos);
  CHECK(text.find("aten::acos") < text.find("aten::sin"));
}

TEST_CASE("an intended infinity isn't reported, and neither is uninitialised memory") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(failure(options([](torch::Tensor y) {
          const auto scores = torch::cat({y, y}, 1), mask = torch::tensor({{true, false}});
          const auto masked = scores.masked_fill(mask, -inf);
          const auto full = torch::full({1, 2}, -inf);
          torch::where(mask, full, scores);
          at::empty_like(scores).fill_(inf);
          return y + masked.softmax(1).narrow(1, 0, 1);
        })) == "");
}

TEST_CASE("half precision overflows where single precision doesn't") {
  const auto half = options([](torch::Tensor y) {
    return ((y + 300).to(torch::kHalf).to(torch::kDouble).to(torch::kHalf) * 300).to(torch::kFloat);
  });
  CHECK(failure(half).starts_with("in batch 0, aten::mul made inf;"));
  CHECK(failure(options([](torch::Tensor y) { return (y + 300) * 300; })) == "");
}

TEST_CASE("non-finite weights and batches are reported before they are used") {
  auto with_nan = options([](torch::Tensor y) { return y; });
  with_nan.train_dataset = etude::Dataset(torch::full({4, 1}, std::nan("")), torch::zeros({4, 1}));
  CHECK(failure(with_nan) == "of the batch, input 0 has NaN: float32 [1, 1]");
  auto with_inf = options([](torch::Tensor y) { return y; });
  {
    const torch::NoGradGuard no_grad;
    with_inf.model.parameters().at(1).fill_(std::numeric_limits<float>::infinity());
  }
  CHECK(failure(with_inf) == "the parameter line.bias has inf: float32 [1]");
}

TEST_CASE("batches can be traced, and training stopped after one") {
  std::vector<std::string> printed;
  etude::DebugUnderflowOverflowCallback callback{.trace_batch_nums = {1, 3}, .abort_after_batch_num = 2};
  callback.print = [&](std::string_view text) { printed.emplace_back(text); };
  etude::Trainer<etude::DebugUnderflowOverflowCallback> trainer(
      options([](torch::Tensor y) { return y.sin(); }), callback);
  const auto output = trainer.train();
  CHECK(output.global_step == 3);
  CHECK(output.stop_reason == "abort_after_batch_num is 2");
  REQUIRE(printed.size() == 1);
  CHECK(printed[0].starts_with("batch 1:\n"));
  CHECK(printed[0].find("aten::sin\n") != std::string::npos);
  CHECK(printed[0].find("aten::cos\n") != std::string::npos);  // of the backward pass
  CHECK_FALSE(at::hasCallbacks());
}

TEST_CASE("detection changes nothing") {
  const auto weights = [](auto trainer_of) {
    torch::manual_seed(1);
    auto trainer = trainer_of(options([](torch::Tensor y) { return torch::dropout(y + 1, .5, true); }));
    trainer->train();
    return torch::stack(trainer->model().parameters());
  };
  const auto with = weights([](auto given) {
    return std::make_unique<etude::Trainer<etude::DebugUnderflowOverflowCallback>>(given);
  });
  const auto without = weights([](auto given) { return std::make_unique<etude::Trainer<>>(given); });
  CHECK(with.equal(without));
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const auto plain = options([](torch::Tensor y) { return y; });
  CHECK(failure(plain, {.max_frames_to_save = 0}) == "max_frames_to_save is 0: must be at least 1");
  CHECK(failure(plain, {.abort_after_batch_num = -1}) ==
        "abort_after_batch_num is -1: must be at least 0, or unset");
}

}  // namespace callbacks_underflow_overflow_test
