#include <doctest/doctest.h>

#include <cmath>
#include <vector>
#include "etude/optim/rules/adafactor.hpp"

#include "etude/base/error.hpp"
#include "optim/compare.hpp"

namespace optim_adafactor_test {

/// Updates one parameter [rows, columns] (a vector, if there is one row) element by element with the paper's
/// algorithms 4 and 5.
struct ScalarAdafactor {
  std::size_t rows, columns;
  bool factored;
  std::vector<double> values, row, column, square, mean;
  int steps = 0;

  ScalarAdafactor(const torch::Tensor& tensor)
      : rows(tensor.dim() == 2 ? std::size_t(tensor.size(0)) : 1),
        columns(std::size_t(tensor.numel()) / rows),
        factored(tensor.dim() == 2),
        row(rows, 0),
        column(columns, 0) {
    const torch::Tensor flat = tensor.detach().contiguous().clone();
    values.assign(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
    square.assign(values.size(), 0);
    mean.assign(values.size(), 0);
  }

  static double rms(const std::vector<double>& v) {
    double sum = 0;
    for (double x : v) sum += x * x;
    return std::sqrt(sum / double(v.size()));
  }

  void step(const torch::Tensor& gradient_tensor, const etude::AdafactorOptions& o, double lr,
            double weight_decay) {
    const torch::Tensor contiguous = gradient_tensor.contiguous();
    const double* g = contiguous.data_ptr<double>();
    ++steps;
    if (o.relative_step) lr = std::min(o.warmup_init ? 1e-6 * steps : 1e-2, 1 / std::sqrt(double(steps)));
    if (o.scale_parameter) lr *= std::max(o.eps2, rms(values));
    const double beta2 = 1 - std::pow(double(steps), o.decay_rate);
    std::vector<double> update(values.size());
    if (factored) {
      double row_mean = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::size_t c = 0; c < columns; ++c) sum += g[r * columns + c] * g[r * columns + c] + o.eps1;
        row[r] = beta2 * row[r] + (1 - beta2) * sum / double(columns);
        row_mean += row[r] / double(rows);
      }
      for (std::size_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::size_t r = 0; r < rows; ++r) sum += g[r * columns + c] * g[r * columns + c] + o.eps1;
        column[c] = beta2 * column[c] + (1 - beta2) * sum / double(rows);
      }
      for (std::size_t i = 0; i < update.size(); ++i) {
        update[i] = g[i] / std::sqrt(row[i / columns] / row_mean * column[i % columns]);
      }
    } else {
      for (std::size_t i = 0; i < update.size(); ++i) {
        square[i] = beta2 * square[i] + (1 - beta2) * (g[i] * g[i] + o.eps1);
        update[i] = g[i] / std::sqrt(square[i]);
      }
    }
    const double clip = std::max(1.0, rms(update) / o.clip_threshold);
    for (std::size_t i = 0; i < update.size(); ++i) {
      double change = lr * update[i] / clip;
      if (o.beta1) change = mean[i] = *o.beta1 * mean[i] + (1 - *o.beta1) * change;
      values[i] -= lr * weight_decay * values[i] + change;
    }
  }
};

double after_1000_steps(const etude::AdafactorOptions& options) {
  beside_torch::Twins twins(at::kDouble);
  for (auto* list : {&twins.ours, &twins.theirs}) {
    std::erase_if(*list, [](const auto& item) { return item.second.dim() == 3; });
  }
  etude::Adafactor ours(beside_torch::groups_of(twins.ours, true), options);
  std::vector<ScalarAdafactor> reference;
  for (const auto& [name, tensor] : twins.theirs) reference.emplace_back(tensor);
  for (std::int64_t step = 0; step < 1000; ++step) {
    ours.zero_grad();
    twins.set_gradients(step);
    for (std::size_t i = 0; i < reference.size(); ++i) {
      const auto& [name, tensor] = twins.theirs[i];
      const bool decays = etude::decays_by_name(name);
      if (tensor.grad().defined()) {
        reference[i].step(tensor.grad(), options, decays ? options.lr : 0.003, decays ? 0.2 : 0.0);
      }
    }
    ours.step();
  }
  double worst = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const torch::Tensor flat = twins.ours[i].second.detach().contiguous();
    for (std::size_t k = 0; k < reference[i].values.size(); ++k) {
      const double difference = std::abs(flat.data_ptr<double>()[k] - reference[i].values[k]);
      worst = difference <= worst ? worst : difference;
    }
  }
  return worst;
}

TEST_CASE("Adafactor equals its scalar reference over 1,000 steps") {
  CHECK(after_1000_steps({.lr = 0.01}) <= 1e-12);
  CHECK(after_1000_steps({.lr = 0.01, .clip_threshold = 0.5, .decay_rate = -0.5, .beta1 = 0.9}) <= 1e-12);
  CHECK(after_1000_steps({.lr = 0.01, .eps2 = 0.1, .scale_parameter = true}) <= 1e-12);
  CHECK(after_1000_steps({.scale_parameter = true, .relative_step = true}) <= 1e-12);
  CHECK(after_1000_steps({.relative_step = true, .warmup_init = true}) <= 1e-12);
}

TEST_CASE(
    "tensors of more dimensions keep rows and columns of the last two, and half precision is kept in float") {
  const torch::Tensor a = torch::randn({3, 6, 2}).set_requires_grad(true);
  const torch::Tensor b = torch::randn({4}).to(at::kBFloat16).set_requires_grad(true);
  etude::Adafactor ours({{.parameters = {{"a", a}, {"b", b}}, .lr = {}, .weight_decay = {}}});
  (a.square().sum() + b.square().sum()).backward();
  ours.step();
  const etude::NamedTensors state = ours.state();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : state) {
      if (key == name) return tensor;
    }
    return torch::Tensor();
  };
  CHECK(find("a.exp_avg_sq_row").sizes() == std::vector<std::int64_t>{3, 6});
  CHECK(find("a.exp_avg_sq_col").sizes() == std::vector<std::int64_t>{3, 2});
  CHECK((find("b.exp_avg_sq").scalar_type() == at::kFloat));
  CHECK_THROWS_AS(etude::Adafactor({{{{"a", a}}, {}, {}}}, {.warmup_init = true}), etude::ArgumentError);
}

}  // namespace optim_adafactor_test
