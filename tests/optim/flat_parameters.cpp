#include <doctest/doctest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/serialize.h>

#include <limits>
#include "etude/base/error.hpp"
#include "etude/optim/flat_parameters.hpp"

namespace optim_flat_parameters_test {

using etude::FlatParameters;
using etude::NamedTensors;

torch::Tensor parameter(std::vector<std::int64_t> sizes, at::ScalarType type = at::kFloat) {
  return torch::rand(sizes, torch::TensorOptions().dtype(type)).set_requires_grad(true);
}

bool inside(const torch::Tensor& tensor, const torch::Tensor& buffer) {
  const auto* begin = static_cast<const char*>(buffer.data_ptr());
  const auto* at = static_cast<const char*>(tensor.data_ptr());
  return at >= begin && at + tensor.nbytes() <= begin + buffer.nbytes();
}

void backward(const NamedTensors& parameters) {
  torch::Tensor loss;
  for (const auto& [name, tensor] : parameters) {
    const torch::Tensor part = (tensor.to(at::kDouble) * 2).square().sum();
    loss = loss.defined() ? loss + part : part;
  }
  loss.backward();
}

torch::Tensor gradient_of(const torch::Tensor& tensor) { return (tensor.detach() * 8); }

TEST_CASE("the module's tensors become views of the buffers and keep their values and gradients") {
  const torch::Tensor a = parameter({3, 5}), b = parameter({7}), c = parameter({2, 2}, at::kDouble);
  a.mutable_grad() = torch::full({3, 5}, 2.0);
  const torch::Tensor a0 = a.detach().clone(), c0 = c.detach().clone();
  FlatParameters flat({{{"a", a}, {"b", b}, {"c", c}}});
  flat.mend();
  REQUIRE(flat.values().size() == 2);
  CHECK(inside(a, flat.values()[0]));
  CHECK(inside(b, flat.values()[0]));
  CHECK(inside(c, flat.values()[1]));
  CHECK(inside(a.grad(), flat.gradients()[0]));
  CHECK(torch::equal(a, a0));
  CHECK(torch::equal(c, c0));
  CHECK(a.is_leaf());
  CHECK(flat.has_gradient(0));
  CHECK_FALSE(flat.has_gradient(1));
  CHECK(a.grad().eq(2).all().item<bool>());
  {
    torch::NoGradGuard guard;
    flat.values()[0].fill_(9);
  }
  CHECK(a.eq(9).all().item<bool>());
  CHECK(reinterpret_cast<std::uintptr_t>(b.data_ptr()) % 64 ==
        reinterpret_cast<std::uintptr_t>(a.data_ptr()) % 64);
}

TEST_CASE("a backward pass accumulates in the buffers and marks the parameters that it reached") {
  const torch::Tensor a = parameter({3, 5}), b = parameter({7}), c = parameter({4});
  FlatParameters flat({{{"a", a}, {"b", b}}, {{"c", c}}});
  flat.zero_grad();
  CHECK_FALSE(a.grad().defined());  // the first gradient may be sparse
  backward({{"a", a}, {"c", c}});
  CHECK(flat.has_gradient(0));
  CHECK_FALSE(flat.has_gradient(1));
  CHECK(flat.has_gradient(2));
  CHECK(torch::allclose(a.grad(), gradient_of(a)));
  flat.mend();
  backward({{"a", a}});
  CHECK(torch::allclose(a.grad(), 2 * gradient_of(a)));
  CHECK(inside(a.grad(), flat.gradients()[0]));
  flat.zero_grad();
  CHECK(flat.gradients()[0].count_nonzero().item<std::int64_t>() == 0);
  CHECK_FALSE(flat.has_gradient(0));
}

TEST_CASE("a tied parameter is stored once, under its first name") {
  torch::nn::Linear first(4, 4), second(4, 4);
  second->weight = first->weight;
  FlatParameters flat(
      {{{"first.weight", first->weight}, {"second.weight", second->weight}, {"bias", second->bias}}});
  REQUIRE(flat.layout()->slots.size() == 2);
  CHECK(flat.layout()->slots[0].name == "first.weight");
  CHECK(second->weight.is_same(first->weight));
}

TEST_CASE("different tensors over the same memory are refused, and so are duplicate names") {
  const torch::Tensor a = parameter({4});
  torch::Tensor b = a.detach().view({2, 2}).set_requires_grad(true);
  CHECK_THROWS_WITH_AS(FlatParameters({{{"a", a}, {"b", b}}}),
                       doctest::Contains("'a' and 'b' are different tensors over the same memory"),
                       etude::ArgumentError);
  CHECK_THROWS_WITH_AS(FlatParameters({{{"a", a}}, {{"a", parameter({4})}}}),
                       "two different parameters are named 'a'", etude::ArgumentError);
}

TEST_CASE("an error names a tensor that can't be trained") {
  const torch::Tensor z = torch::zeros({2}, at::kComplexFloat).set_requires_grad(true);
  CHECK_THROWS_WITH_AS(FlatParameters({{{"z", z}}}), doctest::Contains("parameter 'z' is dense ComplexFloat"),
                       etude::ArgumentError);
}

TEST_CASE("frozen parameters are left out until they require a gradient") {
  const torch::Tensor a = parameter({3}), b = torch::ones({2});
  FlatParameters flat({{{"a", a}, {"b", b}}});
  flat.zero_grad();
  backward({{"a", a}});
  flat.begin_step();
  REQUIRE(flat.layout()->slots.size() == 1);
  CHECK_FALSE(b.grad().defined());

  b.set_requires_grad(true);
  flat.zero_grad();
  REQUIRE(flat.layout()->slots.size() == 2);
  CHECK(flat.steps(0) == 1);
  backward({{"b", b}});
  flat.begin_step();
  CHECK(flat.steps(0) == 1);
  CHECK(flat.steps(1) == 1);
}

TEST_CASE("a parameter that is frozen later keeps its place and its step count, and isn't updated") {
  const torch::Tensor a = parameter({3}), b = parameter({2});
  FlatParameters flat({{{"a", a}, {"b", b}}});
  const auto step = [&](const NamedTensors& used) {
    flat.zero_grad();
    backward(used);
    flat.begin_step();
  };
  step({{"a", a}, {"b", b}});
  b.set_requires_grad(false);
  step({{"a", a}, {"b", b}});
  CHECK(flat.steps(1) == 1);
  const torch::Tensor new_a = a.detach().to(at::kDouble);
  a.set_data(new_a);  // makes a new layout
  step({{"a", a}, {"b", b}});
  b.set_requires_grad(true);
  step({{"a", a}, {"b", b}});
  CHECK(flat.steps(0) + flat.steps(1) == 4 + 2);
}

TEST_CASE("torn views are repaired with the model's values") {
  torch::nn::Linear module(3, 2);
  FlatParameters flat({etude::named_parameters(*module)});
  const NamedTensors all = etude::named_parameters(*module);
  const auto layout = flat.layout();
  backward(all);
  flat.mend();
  flat.zero_grad();

  SUBCASE("set_data") {
    module->weight.set_data(torch::full({2, 3}, 3.0));
    flat.mend();
    CHECK(module->weight.eq(3).all().item<bool>());
    CHECK(flat.layout().get() == layout.get());
  }
  SUBCASE("an undefined gradient counts as missing, and a stale one doesn't come back") {
    backward(all);
    module->weight.mutable_grad().reset();
    flat.mend();
    CHECK_FALSE(flat.has_gradient(0));
    CHECK(module->weight.grad().count_nonzero().item<std::int64_t>() == 0);
    CHECK(flat.has_gradient(1));
  }
  SUBCASE("a gradient that autograd made on its own") {
    module->weight.mutable_grad().reset();
    backward(all);
    CHECK_FALSE(inside(module->weight.grad(), flat.gradients()[0]));
    CHECK(flat.has_gradient(0));
    flat.mend();
    CHECK(flat.has_gradient(0));
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
  }
  SUBCASE("a gradient with a graph") {
    const torch::Tensor loss = (module->weight * 2).square().sum();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    flat.mend();
    CHECK_FALSE(module->weight.grad().requires_grad());
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
  }
  SUBCASE("another dtype flattens everything again, with the gradients and steps") {
    backward(all);
    flat.begin_step();
    module->to(at::kDouble);
    flat.mend();
    CHECK(flat.layout().get() != layout.get());
    CHECK((module->weight.scalar_type() == at::kDouble));
    CHECK((module->weight.grad().scalar_type() == at::kDouble));
    CHECK(flat.has_gradient(0));
    CHECK(flat.steps(0) == 1);
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
    flat.zero_grad();
    backward(all);
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
  }
  SUBCASE("another shape is an error") {
    module->weight.set_data(torch::zeros({5, 3}));
    CHECK_THROWS_WITH_AS(flat.mend(),
                         doctest::Contains("parameter 'weight' changed its shape from [2, 3] to [5, 3]"),
                         etude::Error);
    return;
  }
  CHECK(inside(module->weight, flat.values()[0]));
  CHECK(inside(module->weight.grad(), flat.gradients()[0]));
}

TEST_CASE("torch::load of a module is detected") {
  torch::nn::Linear module(3, 2), other(3, 2);
  FlatParameters flat({etude::named_parameters(*module)});
  std::stringstream file;
  torch::save(other, file);
  torch::load(module, file);
  flat.mend();
  CHECK(torch::equal(module->weight, other->weight));
  CHECK(inside(module->weight, flat.values()[0]));
}

TEST_CASE("dense strides are kept, others become contiguous, and empty parameters stay") {
  torch::Tensor channels_last =
      torch::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  torch::Tensor gaps = torch::rand({4, 6}).slice(1, 0, 6, 2).detach().set_requires_grad(true);
  torch::Tensor broadcast = torch::rand({1, 3}).expand({4, 3}).detach().set_requires_grad(true);
  torch::Tensor empty = parameter({0, 3}), scalar = parameter({});
  const NamedTensors all{{"c", channels_last}, {"g", gaps}, {"b", broadcast}, {"e", empty}, {"s", scalar}};
  std::vector<torch::Tensor> before;
  for (const auto& [name, tensor] : all) before.push_back(tensor.detach().clone());
  FlatParameters flat({all});
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(torch::equal(all[i].second, before[i]));
  CHECK(channels_last.is_contiguous(at::MemoryFormat::ChannelsLast));
  CHECK(gaps.is_contiguous());
  flat.zero_grad();
  backward(all);
  for (const auto& [name, tensor] : all) CHECK(torch::allclose(tensor.grad(), gradient_of(tensor)));
  CHECK(flat.begin_step().size() == 1);
}

TEST_CASE("gradients outside the buffers are autograd's own, and count if they exist") {
  const torch::Tensor a = parameter({30, 5}), b = parameter({7});
  FlatParameters flat({{{"a", a}, {"b", b}}});
  flat.zero_grad(/*apart=*/true);
  CHECK_FALSE(a.grad().defined());
  CHECK_FALSE(flat.has_gradient(0));
  backward({{"a", a}});
  CHECK(flat.has_gradient(0));
  CHECK_FALSE(flat.has_gradient(1));
  CHECK(flat.grad_norm().item<double>() ==
        doctest::Approx(gradient_of(a).norm().item<double>()).epsilon(1e-6));
  flat.clip_grad_norm(0.5);
  CHECK(a.grad().norm().item<double>() == doctest::Approx(0.5).epsilon(1e-4));
  flat.begin_step();
  CHECK(flat.are_gradients_apart());
  CHECK(flat.gradients().empty());
  CHECK(flat.steps(0) == 1);
  CHECK(flat.steps(1) == 0);

  backward({{"b", b}});
  flat.gather();
  CHECK(flat.has_gradient(1));
  CHECK(inside(b.grad(), flat.gradients()[0]));
  CHECK(torch::allclose(b.grad(), gradient_of(b)));
  flat.zero_grad(/*apart=*/true);
  CHECK_FALSE(b.grad().defined());
  flat.zero_grad();
  CHECK(inside(a.grad(), flat.gradients()[0]));
  CHECK(a.grad().count_nonzero().item<std::int64_t>() == 0);
  CHECK_FALSE(flat.has_gradient(0));
}

TEST_CASE("a gradient of another kind than its parameter moves into the buffers") {
  torch::nn::Linear module(3, 2);
  FlatParameters flat({etude::named_parameters(*module)});
  const NamedTensors all = etude::named_parameters(*module);
  flat.zero_grad(/*apart=*/true);
  SUBCASE("the parameter changed its dtype") {
    backward(all);
    module->to(at::kDouble);
    flat.begin_step();
    CHECK((module->weight.grad().scalar_type() == at::kDouble));
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
  }
  SUBCASE("it has a graph") {
    const torch::Tensor loss = (module->weight * 2).square().sum();
    torch::autograd::backward({loss}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    flat.begin_step();
    CHECK_FALSE(module->weight.grad().requires_grad());
    CHECK(torch::allclose(module->weight.grad(), gradient_of(module->weight)));
  }
  SUBCASE("it has other strides") {
    module->weight.mutable_grad() = torch::ones({3, 2}).t();
    flat.begin_step();
    CHECK(module->weight.grad().is_contiguous());
  }
  CHECK_FALSE(flat.are_gradients_apart());
  CHECK(inside(module->weight.grad(), flat.gradients()[0]));
  CHECK(flat.has_gradient(0));
}

/// A table with a sparse gradient among dense parameters.
struct WithTable {
  torch::Tensor before = parameter({3}), table = parameter({5, 2}), after = parameter({4});

  NamedTensors all() const { return {{"before", before}, {"table", table}, {"after", after}}; }
  void run(const torch::Tensor& rows) const {
    const auto found = torch::embedding(table, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                                        /*sparse=*/true);
    (found.sum() + (before * 2).sum() + (after * 3).sum()).backward();
  }
};

TEST_CASE("a parameter leaves the flat buffers with its first sparse gradient, which stays sparse") {
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    const WithTable model;
    const torch::Tensor table = model.table.detach().clone();
    FlatParameters flat({model.all()});
    const auto sparse_slot = [&] { return flat.layout()->by_name.at("table"); };
    CHECK_FALSE(flat.is_sparse(sparse_slot()));
    for (int step = 1; step <= 3; ++step) {
      flat.zero_grad(apart);
      CHECK_FALSE(model.table.grad().defined());
      model.run(torch::tensor({1, 1, 3}));
      flat.mend();
      REQUIRE(flat.is_sparse(sparse_slot()));
      CHECK(model.table.grad().is_sparse());
      CHECK(flat.has_gradient(sparse_slot()));
      model.run(torch::tensor({3}));  // accumulates
      const auto& ranges = flat.begin_step();
      CHECK(ranges.size() == 2);
      for (std::size_t i = 0; i < 3; ++i) CHECK(flat.steps(i) == step);
      REQUIRE(model.table.grad().is_coalesced());
      CHECK(torch::equal(model.table.grad()._indices(), torch::tensor({{1, 3}})));
      CHECK(torch::equal(model.table.grad()._values(), torch::tensor({{2., 2.}, {2., 2.}}, at::kFloat)));
      CHECK(model.before.grad().eq(4).all().item<bool>());
      CHECK(model.after.grad().eq(6).all().item<bool>());
    }
    CHECK(torch::equal(model.table, table));
    const auto& slot = flat.layout()->slots[sparse_slot()];
    CHECK(flat.layout()->buffers[slot.buffer].size < 64);  // only the table
    CHECK(inside(model.table, flat.values()[slot.buffer]));
    if (!apart) {
      CHECK_FALSE(flat.gradients()[slot.buffer].defined());
    }
    model.table.set_requires_grad(false);  // a later layout remembers it
    model.before.set_data(model.before.to(at::kDouble));
    flat.zero_grad(apart);
    CHECK(flat.is_sparse(sparse_slot()));
    CHECK_FALSE(flat.has_gradient(sparse_slot()));
  }
}

TEST_CASE("a sparse gradient counts in norms and clipping by its coalesced rows") {
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    const WithTable model;
    FlatParameters flat({model.all()});
    flat.zero_grad(apart);
    model.run(torch::tensor({1, 1, 3}));  // gradients: rows (2, 2) and (1, 1), 3 times 2, 4 times 3
    const double norm = std::sqrt(2 * 4. + 2 * 1. + 3 * 4. + 4 * 9.);
    CHECK(flat.grad_norm().item<double>() == doctest::Approx(norm).epsilon(1e-6));
    CHECK(flat.clip_grad_norm(1).item<double>() == doctest::Approx(norm).epsilon(1e-6));
    CHECK(model.table.grad().coalesce().values()[0][0].item<double>() ==
          doctest::Approx(2 / norm).epsilon(1e-5));
    CHECK(flat.grad_norm().item<double>() == doctest::Approx(1).epsilon(1e-5));
    flat.clip_grad_value(0.2);
    CHECK(model.table.grad().coalesce().values().max().item<double>() == doctest::Approx(0.2));
    CHECK(flat.multiply_gradients(0.5));
    CHECK(model.table.grad().coalesce().values().max().item<double>() == doctest::Approx(0.1));
    model.table.grad()._values()[1][0] = std::numeric_limits<double>::infinity();
    CHECK_FALSE(flat.multiply_gradients(1));
  }
}

TEST_CASE("a dense gradient of a parameter with sparse ones stays as it is, and counts") {
  const WithTable model;
  FlatParameters flat({model.all()});
  model.run(torch::tensor({1}));
  flat.zero_grad();
  model.run(torch::tensor({1}));
  flat.begin_step();
  flat.zero_grad();
  (model.table * 2).sum().backward();
  flat.begin_step();
  CHECK_FALSE(model.table.grad().is_sparse());
  CHECK(flat.grad_norm().item<double>() == doctest::Approx(std::sqrt(10 * 4.)).epsilon(1e-6));
  CHECK(flat.steps(flat.layout()->by_name.at("table")) == 2);
}

TEST_CASE("shards refuse a sparse gradient, by the parameter's name") {
  const WithTable model;
  FlatParameters flat({model.all()});
  flat.keep_shard({.count = 2});
  flat.zero_grad();
  model.run(torch::tensor({1}));
  CHECK_THROWS_WITH_AS(
      flat.begin_step(),
      doctest::Contains("parameter 'table' has a sparse gradient, which ShardedDataParallel"),
      etude::ArgumentError);
}

TEST_CASE("clipping equals torch's, over several dtypes and groups") {
  for (double max_norm : {0.5, 1e6, std::numeric_limits<double>::infinity()}) {
    CAPTURE(max_norm);
    const torch::Tensor a = parameter({30, 5}), b = parameter({7}, at::kDouble), c = parameter({4});
    FlatParameters flat({{{"a", a}, {"b", b}}, {{"c", c}}});
    flat.zero_grad();
    backward({{"a", a}, {"b", b}, {"c", c}});
    std::vector<torch::Tensor> copies;
    for (const torch::Tensor& tensor : {a, b, c}) {
      copies.push_back(tensor.detach().clone());
      copies.back().mutable_grad() = tensor.grad().clone();
    }
    const double expected = torch::nn::utils::clip_grad_norm_(copies, max_norm);
    CHECK(flat.grad_norm().item<double>() == doctest::Approx(expected).epsilon(1e-6));
    const torch::Tensor norm = flat.clip_grad_norm(max_norm);
    CHECK(norm.dim() == 0);
    CHECK(norm.item<double>() == doctest::Approx(expected).epsilon(1e-6));
    CHECK(torch::allclose(a.grad(), copies[0].grad(), 1e-6));
    CHECK(torch::allclose(b.grad(), copies[1].grad(), 1e-6));
    CHECK(torch::allclose(c.grad(), copies[2].grad(), 1e-6));
  }
}

TEST_CASE("norms of half-precision tensors are summed in float") {
  const torch::Tensor a = parameter({1000}, at::kHalf), b = parameter({10}, at::kBFloat16);
  FlatParameters flat({{{"a", a}, {"b", b}}});
  backward({{"a", a}, {"b", b}});
  flat.mend();
  flat.gradients()[1].zero_();
  flat.gradients()[0].narrow(0, 0, 1000).fill_(3000);  // the norm, 94868, exceeds half's maximum, 65504
  CHECK(flat.grad_norm().item<double>() == doctest::Approx(3000 * std::sqrt(1000.0)).epsilon(1e-3));
  flat.clip_grad_norm(1.0);
  CHECK(a.grad().to(at::kFloat).max().item<double>() == doctest::Approx(1 / std::sqrt(1000.0)).epsilon(1e-2));
}

TEST_CASE("clipping by value limits each element") {
  const torch::Tensor a = parameter({100}), b = parameter({10}, at::kBFloat16);
  FlatParameters flat({{{"a", a}, {"b", b}}});
  backward({{"a", a}, {"b", b}});
  flat.mend();
  flat.gradients()[0].fill_(-7);
  flat.gradients()[1].fill_(0.5);
  flat.clip_grad_value(2);
  CHECK(a.grad().eq(-2).all().item<bool>());
  CHECK(b.grad().eq(0.5).all().item<bool>());
}

TEST_CASE("ranges are maximal runs of parameters with the same group and number of steps, and cached") {
  const torch::Tensor a = parameter({3}), b = parameter({20}), c = parameter({4}), d = parameter({5});
  FlatParameters flat({{{"a", a}, {"b", b}, {"c", c}}, {{"d", d}}});
  const auto step = [&](const NamedTensors& used) {
    flat.zero_grad();
    if (!used.empty()) backward(used);
    return flat.begin_step();
  };
  const NamedTensors all{{"a", a}, {"b", b}, {"c", c}, {"d", d}};
  auto ranges = step(all);
  REQUIRE(ranges.size() == 2);
  CHECK(ranges[0].offset == 0);
  CHECK(ranges[0].size == 16 + 32 + 16);
  CHECK(ranges[0].first == 0);
  CHECK(ranges[0].last == 3);
  CHECK(ranges[1].group == 1);
  const auto generation = flat.generation();
  ranges = step(all);
  CHECK(ranges[0].steps == 2);
  CHECK(flat.generation() == generation);

  ranges = step({{"a", a}, {"c", c}});
  REQUIRE(ranges.size() == 2);
  CHECK(ranges[0].last == 1);
  CHECK(ranges[1].first == 2);
  CHECK(ranges[1].steps == 3);
  CHECK(flat.generation() != generation);

  ranges = step(all);  // b is one step behind
  REQUIRE(ranges.size() == 4);
  CHECK(ranges[1].steps == 3);
  CHECK(ranges[2].steps == 4);
  CHECK(step({}).empty());
}

TEST_CASE("an update counts as a change of the parameter for autograd's checks") {
  const torch::Tensor a = parameter({3});
  FlatParameters flat({{{"a", a}}});
  const torch::Tensor loss = (a * a).sum();
  backward({{"a", a}});
  flat.begin_step();
  CHECK_THROWS_WITH(loss.backward(), doctest::Contains("modified by an inplace operation"));
}

TEST_CASE("the tensors outlive the buffers, and gradients that were never computed are undefined again") {
  const torch::Tensor a = parameter({3}), b = parameter({3});
  const torch::Tensor before = a.detach().clone();
  {
    FlatParameters flat({{{"a", a}, {"b", b}}});
    flat.zero_grad();
    backward({{"a", a}});
  }
  CHECK(torch::equal(a, before));
  CHECK(torch::allclose(a.grad(), gradient_of(a)));
  CHECK_FALSE(b.grad().defined());
}

}  // namespace optim_flat_parameters_test
