#include "etude/optim/lbfgs_state.hpp"

#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/optim/rules/lbfgs.hpp"

#include <doctest/doctest.h>  // last, since LibTorch defines a CHECK too

namespace optim_lbfgs_state_test {

/// Two parameters, three elements in total, after some steps in a curved valley.
struct Trained {
  torch::Tensor x = torch::full({1}, -1.5, at::kDouble).set_requires_grad(true);
  torch::Tensor y = torch::full({2}, 2.0, at::kDouble).set_requires_grad(true);
  etude::LBFGS lbfgs{etude::parameter_groups(etude::NamedTensors{{"x", x}, {"y", y}}, 0),
                     {.lr = 0.5, .max_iter = 4, .history_size = 5}};

  void step() {
    lbfgs.step([&] {
      lbfgs.zero_grad();
      const torch::Tensor loss = (1 - x).square().sum() + 100 * (y - x.square()).square().sum();
      loss.backward();
      return loss;
    });
  }

  Trained() {
    for (int i = 0; i < 3; ++i) step();
  }

  etude::NamedTensors state() {
    etude::NamedTensors result;
    for (const auto& [name, tensor] : lbfgs.state()) result.emplace_back(name, tensor.clone());
    return result;
  }
};

torch::Tensor& entry(etude::NamedTensors& tensors, const std::string& name) {
  for (auto& [key, tensor] : tensors) {
    if (key == "lbfgs." + name) return tensor;
  }
  throw std::out_of_range(name);
}

TEST_CASE("an invalid LBFGS state is refused by name, and nothing is changed") {
  Trained trained;
  const etude::NamedTensors good = trained.state();
  const auto refuses = [&](const etude::NamedTensors& bad, const char* text) {
    CHECK_THROWS_WITH_AS(trained.lbfgs.load_state(bad), doctest::Contains(text), etude::CheckpointError);
    const etude::NamedTensors now = trained.state();
    REQUIRE(now.size() == good.size());
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(torch::equal(now[i].second, good[i].second));
  };
  const auto with = [&](const char* name, const torch::Tensor& tensor) {
    etude::NamedTensors bad = good;
    entry(bad, name) = tensor;
    return bad;
  };
  refuses(with("d", torch::zeros({4}, at::kDouble)), "'lbfgs.d' has sizes [4], expected [3]");
  refuses(with("d", torch::zeros({3}, at::kLong)), "'lbfgs.d' isn't a floating-point tensor");
  refuses(with("d", torch::zeros({3}).to_sparse()), "'lbfgs.d' isn't a floating-point tensor");
  refuses(with("d", {}), "'lbfgs.d' isn't a floating-point tensor");
  refuses(with("H_diag", torch::zeros({1})), "'lbfgs.H_diag' has sizes [1], expected []");
  refuses(with("prev_flat_grad", torch::zeros({3, 1})), "'lbfgs.prev_flat_grad' has sizes [3, 1]");
  refuses(with("numbers", torch::ones({5})), "'lbfgs.numbers' has sizes [5], expected [4]");
  for (const double count : {0.0, -1.0, 1.5, 9007199254740992.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    refuses(with("numbers", torch::tensor({count, 3.0, 1.0, 1.0}, at::kDouble)), "has func_evals");
    refuses(with("numbers", torch::tensor({3.0, count, 1.0, 1.0}, at::kDouble)), "has n_iter");
  }
  etude::NamedTensors same = good;
  const std::int64_t history = entry(same, "old_dirs").size(0);
  REQUIRE(history > 0);
  refuses(with("old_dirs", torch::zeros({history, 4})), "'lbfgs.old_dirs' has sizes");
  refuses(with("old_dirs", torch::zeros({history + 1, 3})), "'lbfgs.old_");
  refuses(with("old_dirs", torch::zeros({6, 3})), "has 6 updates: must be at most history_size, 5");
  refuses(with("old_dirs", torch::zeros({})), "'lbfgs.old_dirs' has sizes [], expected [0, 3]");
  refuses(with("old_stps", torch::zeros({history, 3, 1})), "'lbfgs.old_stps' has sizes");
  refuses(with("ro", torch::zeros({history + 1})), "'lbfgs.ro' has sizes");
  for (const char* name : {"numbers", "d", "H_diag", "prev_flat_grad", "old_stps", "ro"}) {
    etude::NamedTensors bad = good;
    std::erase_if(bad, [&](const auto& item) { return item.first == std::string("lbfgs.") + name; });
    refuses(bad, name);
  }
  etude::NamedTensors bad = good;
  bad.emplace_back("x.exp_avg", torch::zeros({1}));
  refuses(bad, "'x.exp_avg' is unknown to LBFGS");
  bad = good;
  bad.push_back(good.front());
  refuses(bad, "contains 'lbfgs.numbers' twice");
}

TEST_CASE("an LBFGS state in another precision is converted, and an empty one starts from scratch") {
  Trained trained;
  etude::NamedTensors floats;
  for (const auto& [name, tensor] : trained.state())
    floats.emplace_back(name, name == "lbfgs.numbers" ? tensor : tensor.to(at::kFloat));
  const etude::NamedTensors before = trained.state();
  trained.lbfgs.load_state(floats);
  const etude::NamedTensors after = trained.state();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].second.dtype() == torch::kDouble);
    CHECK(torch::allclose(after[i].second, before[i].second, 1e-6));
  }
  trained.step();
  trained.lbfgs.load_state({});
  CHECK(trained.lbfgs.state().empty());
  trained.step();
  CHECK_FALSE(trained.lbfgs.state().empty());
}

}  // namespace optim_lbfgs_state_test
