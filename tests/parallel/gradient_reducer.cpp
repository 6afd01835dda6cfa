#include "etude/parallel/gradient_reducer.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/flat_parameters.hpp"

namespace parallel_gradient_reducer_test {

using toy::checks;
using toy::Faults;

// Three layers with weights and biases in different groups, as for weight decay.
struct Net {
  Net() {
    for (auto& [name, tensor] : parameters()) {
      tensor.data().fill_(0.01 * static_cast<double>(names.size() + 1));
      groups[tensor.dim() == 1].emplace_back(name, tensor);
      names.push_back(name);
    }
  }

  etude::NamedTensors parameters() {
    etude::NamedTensors result;
    for (const auto& item : layers->named_parameters()) result.emplace_back(item.key(), item.value());
    return result;
  }

  torch::Tensor loss(std::int64_t rank) {
    return layers->forward(torch::full({3, 8}, 1.0 + static_cast<double>(rank))).square().sum();
  }

  torch::nn::Sequential layers{torch::nn::Linear(8, 16), torch::nn::Linear(16, 16), torch::nn::Linear(16, 4)};
  std::vector<etude::NamedTensors> groups{2};
  std::vector<std::string> names;
};

// A net whose gradients are summed.
struct Reduced : Net {
  Reduced(etude::Communicator& ranks, std::int64_t chunk_bytes)
      : reducer(ranks, {&flat}, names, chunk_bytes) {}

  etude::FlatParameters flat{groups};
  etude::GradientReducer reducer;
};

// The gradients of all ranks, summed.
std::vector<torch::Tensor> expected_gradients(std::int64_t world) {
  Net net;
  for (std::int64_t rank = 0; rank < world; ++rank) net.loss(rank).backward();
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : net.parameters()) result.push_back(tensor.grad());
  return result;
}

TEST_CASE("gradients are summed over all ranks, chunk by chunk, while backward runs") {
  for (const std::int64_t world : {2, 3}) {
    for (const std::int64_t chunk_bytes : {1, 600, 1 << 20}) {
      CAPTURE(chunk_bytes);
      const auto expected = expected_gradients(world);
      const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
        Reduced net(ranks, chunk_bytes);
        for (int step = 0; step < 2; ++step) {
          net.flat.zero_grad();
          net.reducer.begin();
          net.loss(ranks.rank()).backward();
          net.reducer.finish();
          const std::lock_guard lock(checks);
          const auto parameters = net.parameters();
          for (std::size_t i = 0; i < expected.size(); ++i)
            CHECK(torch::allclose(parameters[i].second.grad(), expected[i]));
          CHECK(net.reducer.sent_early() == net.reducer.chunks());
        }
        const std::lock_guard lock(checks);
        CHECK(net.reducer.chunks() == (chunk_bytes == 1 ? 6 : chunk_bytes == 600 ? 2 : 1));
      });
      CHECK(faults == Faults(static_cast<std::size_t>(world)));
    }
  }
}

// Records how many sums of gradients were pending when the sum of the results began.
struct Watching : etude::Communicator {
  explicit Watching(etude::Communicator& real) : Communicator(real.launch()), real_(real) {}

  etude::PendingMessage begin_sum(const torch::Tensor& tensor) override {
    if (tensor.scalar_type() == torch::kDouble)
      beside_results = under_way;
    else
      ++under_way;
    return [this, arrive = real_.begin_sum(tensor), is_gradient = tensor.scalar_type() != torch::kDouble] {
      arrive();
      if (is_gradient) --under_way;
    };
  }

  int under_way = 0, beside_results = 0;

 private:
  etude::Communicator& real_;
};

TEST_CASE("the results of the processes are under way together with the gradients") {
  const auto faults = toy::as_ranks(2, [](etude::Communicator& real) {
    Watching ranks(real);
    Reduced net(ranks, 600);
    net.reducer.begin();
    net.loss(ranks.rank()).backward();
    const auto all = net.reducer.finish(etude::GradientsResult::complete, {1.5, 2});
    const std::lock_guard lock(checks);
    CHECK(ranks.beside_results == 2);
    CHECK(ranks.under_way == 0);
    CHECK(all.count(etude::GradientsResult::complete) == 2);
    CHECK(all.sums == std::vector<double>{3, 4});
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("only the backward pass behind begin() sends, with what accumulated before") {
  const auto expected = expected_gradients(2);
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    Reduced net(ranks, 1);
    net.flat.zero_grad();
    net.loss(ranks.rank()).backward();
    net.reducer.begin();
    net.loss(ranks.rank()).backward();
    net.reducer.finish();
    net.loss(ranks.rank()).backward();  // affects only this rank
    const std::lock_guard lock(checks);
    const auto own = [&](std::size_t i) {
      Net alone;
      alone.loss(ranks.rank()).backward();
      return alone.parameters()[i].second.grad();
    };
    const auto parameters = net.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(torch::allclose(parameters[i].second.grad(), 2 * expected[i] + own(i)));
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a parameter that only some ranks use counts as used by all, and one that none uses by none") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    torch::nn::Linear shared(2, 2), own(2, 2), unused(2, 2);
    etude::NamedTensors all;
    std::vector<std::string> names;
    for (const auto& [prefix, layer] :
         {std::pair("shared", shared), std::pair("own", own), std::pair("unused", unused)})
      for (const auto& item : layer->named_parameters()) {
        names.push_back(std::string(prefix) + "." + item.key());
        all.emplace_back(names.back(), item.value());
      }
    etude::FlatParameters flat({all});
    etude::GradientReducer reducer(ranks, {&flat}, names, 1);
    flat.zero_grad();
    reducer.begin();
    auto output = shared->forward(torch::ones({1, 2}));
    if (ranks.rank() == 0) output = own->forward(torch::ones({1, 2})) + output;
    output.sum().backward();
    reducer.finish();
    const std::lock_guard lock(checks);
    CHECK(shared->bias.grad().equal(torch::full({2}, 2.0F)));
    CHECK(own->bias.grad().equal(torch::full({2}, 1.0F)));
    for (std::size_t slot = 0; slot < names.size(); ++slot)
      CHECK(flat.has_gradient(slot) == (names[slot].find("unused") == std::string::npos));
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a model that moves to another dtype between two updates is reduced in it") {
  const auto expected = expected_gradients(2);
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    Reduced net(ranks, 1);
    const auto step = [&](torch::Dtype dtype) {
      net.flat.zero_grad();
      net.reducer.begin();
      net.layers->forward(torch::full({3, 8}, 1.0 + static_cast<double>(ranks.rank()), dtype))
          .square()
          .sum()
          .backward();
      net.reducer.finish();
    };
    step(torch::kFloat);
    net.layers->to(torch::kDouble);
    step(torch::kDouble);
    const std::lock_guard lock(checks);
    const auto parameters = net.parameters();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK((parameters[i].second.grad().scalar_type() == torch::kDouble));
      CHECK(torch::allclose(parameters[i].second.grad(), expected[i].to(torch::kDouble), 1e-5));
    }
    CHECK(net.reducer.sent_early() == net.reducer.chunks());
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("the gradients of two optimizers, whose layers take turns, are reduced together") {
  for (const std::int64_t chunk_bytes : {1, 600, 1 << 20}) {
    CAPTURE(chunk_bytes);
    const auto expected = expected_gradients(2);
    const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
      Net net;
      const auto all = net.parameters();
      const auto layer = [&](std::size_t i) { return etude::NamedTensors{all[2 * i], all[2 * i + 1]}; };
      auto outer = layer(0);
      for (const auto& each : layer(2)) outer.push_back(each);
      etude::FlatParameters first({outer}), second({layer(1)});
      etude::GradientReducer reducer(ranks, {&first, &second}, net.names, chunk_bytes);
      for (int step = 0; step < 2; ++step) {
        first.zero_grad();
        second.zero_grad();
        reducer.begin();
        net.loss(ranks.rank()).backward();
        reducer.finish();
        const std::lock_guard lock(checks);
        for (std::size_t i = 0; i < expected.size(); ++i)
          CHECK(torch::allclose(all[i].second.grad(), expected[i]));
      }
    });
    CHECK(faults == Faults(2));
  }
}

TEST_CASE("alone, gradients are as the backward pass leaves them") {
  etude::Communicator alone;
  Net net;
  etude::FlatParameters flat(net.groups);
  etude::GradientReducer reducer(alone, {&flat}, net.names);
  flat.zero_grad();
  reducer.begin();
  net.loss(0).backward();
  reducer.finish();
  const auto expected = expected_gradients(1);
  const auto parameters = net.parameters();
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(parameters[i].second.grad().equal(expected[i]));
  CHECK(reducer.sent_early() == 0);
}

// A table with sparse gradients, next to dense parameters. Each rank reads different rows, some of them
// twice.
struct WithTable {
  torch::Tensor table = (torch::arange(40, torch::kFloat).view({20, 2}) / 10).set_requires_grad(true);
  torch::Tensor bias = torch::ones({2}).set_requires_grad(true);

  std::vector<etude::NamedTensors> groups() const { return {{{"table", table}, {"bias", bias}}}; }
  torch::Tensor loss(std::int64_t rank, std::int64_t step) const {
    const auto rows = torch::tensor({rank, rank, rank + 3 + step, std::int64_t{3}});
    return ((torch::embedding(table, rows, -1, false, /*sparse=*/true) * bias).square() *
            static_cast<double>(rank + 1))
        .sum();
  }
};

TEST_CASE("sparse gradients are summed over all ranks, and stay sparse") {
  for (const std::int64_t world : {2, 3}) {
    const auto faults = toy::as_ranks(world, [&](etude::Communicator& ranks) {
      WithTable model;
      etude::FlatParameters flat(model.groups());
      etude::GradientReducer reducer(ranks, {&flat}, {"table", "bias"});
      for (std::int64_t step = 0; step < 3; ++step) {
        WithTable whole;  // one process with the losses of all
        for (std::int64_t rank = 0; rank < world; ++rank) whole.loss(rank, step).backward();
        flat.zero_grad();
        if (step == 1) model.loss(ranks.rank(), step).mul(0).backward();  // a micro-batch before the last
        reducer.begin();
        model.loss(ranks.rank(), step).backward();
        reducer.finish();
        const std::lock_guard lock(checks);
        REQUIRE(model.table.grad().is_sparse());
        CHECK(model.table.grad().is_coalesced());
        CHECK(torch::allclose(model.table.grad().to_dense(), whole.table.grad().to_dense()));
        CHECK(torch::allclose(model.bias.grad(), whole.bias.grad()));
        CHECK(model.table.grad()._nnz() < 20);
      }
    });
    CHECK(faults == Faults(static_cast<std::size_t>(world)));
  }
}

TEST_CASE("a table that only one rank reads, at first or for ever, has its gradient in all of them") {
  const auto faults = toy::as_ranks(3, [&](etude::Communicator& ranks) {
    WithTable model;
    etude::FlatParameters flat(model.groups());
    etude::GradientReducer reducer(ranks, {&flat}, {"table", "bias"});
    for (int step = 0; step < 3; ++step) {
      flat.zero_grad();
      reducer.begin();
      if (ranks.rank() == 1) model.loss(1, step).backward();
      reducer.finish(ranks.rank() == 1 ? etude::GradientsResult::complete
                                       : etude::GradientsResult::no_batches);
      WithTable whole;
      whole.loss(1, step).backward();
      const std::lock_guard lock(checks);
      const auto slot = flat.layout()->by_name.at("table");
      CHECK(flat.is_sparse(slot));
      CHECK(flat.has_gradient(slot));
      CHECK(torch::equal(model.table.grad().to_dense(), whole.table.grad().to_dense()));
      CHECK(torch::equal(model.bias.grad(), whole.bias.grad()));
      flat.begin_step();
      CHECK(flat.steps(slot) == step + 1);
    }
    flat.zero_grad();
    reducer.finish(etude::GradientsResult::no_batches);
    const std::lock_guard lock(checks);
    CHECK_FALSE(flat.has_gradient(flat.layout()->by_name.at("table")));
  });
  CHECK(faults == Faults(3));
}

TEST_CASE("a gradient that is sparse in one rank and dense in another is an error in both, at first") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    WithTable model;
    etude::FlatParameters flat(model.groups());
    etude::GradientReducer reducer(ranks, {&flat}, {"table", "bias"});
    const auto run = [&] {
      flat.zero_grad();
      reducer.begin();
      ranks.rank() == 0 ? model.loss(0, 0).backward() : model.table.sum().backward();
      reducer.finish();
    };
    const std::string why =
        "parameter 'table' has a sparse gradient in 1 processes and a dense one in 1: must be the same in "
        "all";
    std::string thrown;
    try {
      run();
    } catch (const etude::DataError& error) {
      thrown = error.what();
    }
    const std::lock_guard lock(checks);
    CHECK(thrown == why);
  });
  CHECK(faults == Faults(2));
}

TEST_CASE("a dense gradient of a table whose gradients are sparse is sent as rows") {
  const auto faults = toy::as_ranks(2, [&](etude::Communicator& ranks) {
    WithTable model;
    etude::FlatParameters flat(model.groups());
    etude::GradientReducer reducer(ranks, {&flat}, {"table", "bias"});
    for (int step = 0; step < 2; ++step) {
      flat.zero_grad();
      reducer.begin();
      step == 1 && ranks.rank() == 1 ? model.table.sum().backward() : model.loss(0, 0).backward();
      reducer.finish();
    }
    WithTable whole;
    whole.loss(0, 0).backward();
    const std::lock_guard lock(checks);
    CHECK(torch::allclose(model.table.grad().to_dense(), whole.table.grad().to_dense() + 1));
  });
  CHECK(faults == Faults(2));
}

}  // namespace parallel_gradient_reducer_test
