#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "etude/optim/create.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optimizer_names.hpp"

/// Compares docs/optimizers.md, which docs/optimizer_table.py generates, with what optimizers do.
namespace optimizers_page_test {

/// The cells of each row of the page's first table, by the optimizer's name.
std::map<std::string, std::vector<std::string>> rows() {
  const auto path =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "docs" / "optimizers.md";
  std::ifstream page(path);
  std::map<std::string, std::vector<std::string>> found;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| [`")) continue;
    std::istringstream text(line.substr(2));
    std::vector<std::string> cells;
    for (std::string cell; std::getline(text, cell, '|');) {
      const auto first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
      cells.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
    }
    const auto begin = cells[0].find('`') + 1;
    found[cells[0].substr(begin, cells[0].find('`', begin) - begin)] = cells;
  }
  return found;
}

constexpr std::int64_t side = 512;

struct Made {
  explicit Made(etude::OptimizerNames optim) {
    etude::TrainingArguments args;
    args.optim = optim;
    optimizer = etude::make_optimizer(args, etude::NamedTensors{{"layers.weight", weight}});
  }
  torch::Tensor weight = torch::zeros({side, side}).set_requires_grad(true);
  std::unique_ptr<etude::Optimizer> optimizer;
};

/// The bytes of state per element of a float32 matrix, after a step.
double state_bytes(etude::OptimizerNames optim) {
  Made made(optim);
  made.optimizer->step([&] {
    made.optimizer->zero_grad();
    const auto gradient = torch::ones({side, side});
    made.weight.mutable_grad() =
        optim == etude::OptimizerNames::sparse_adam ? gradient.to_sparse() : gradient;
    return gradient.sum();
  });
  return static_cast<double>(made.optimizer->state_bytes()) / (side * side);
}

TEST_CASE("the page of optimizers has a row for each, with the bytes that its state takes") {
  const auto page = rows();
  for (const std::string_view name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    const auto row = page.find(std::string(name));
    REQUIRE(row != page.end());
    std::string bytes = row->second.at(1);
    if (bytes.ends_with('*')) bytes.pop_back();
    CHECK(bytes == fmt::format("{:.3g}", state_bytes(etude::from_string<etude::OptimizerNames>(name))));
  }
  CHECK(page.size() == etude::enum_names<etude::OptimizerNames>.size());
}

TEST_CASE("the page of optimizers says what each supports") {
  const auto page = rows();
  for (const std::string_view name : etude::enum_names<etude::OptimizerNames>) {
    CAPTURE(name);
    const auto& row = page.at(std::string(name));
    const auto optim = etude::from_string<etude::OptimizerNames>(name);
    const etude::OptimizerTraits traits = Made(optim).optimizer->traits();
    const auto says = [&](std::size_t column) { return row.at(column) == "yes"; };
    CHECK(says(2) == traits.rounds_bfloat16);
    CHECK(says(3) == traits.is_elementwise);
    CHECK(says(4) == traits.takes_sparse_gradients);
    if (!says(3)) continue;
    CHECK(Made(optim).optimizer->offload_moments());
    CHECK(Made(optim).optimizer->make_capturable());
  }
}

}  // namespace optimizers_page_test
