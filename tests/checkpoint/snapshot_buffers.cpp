#include "etude/checkpoint/snapshot_buffers.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

namespace checkpoint_snapshot_buffers_test {

using List = std::vector<std::pair<std::string, torch::Tensor>>;

TEST_CASE("copies keep their values when the tensors change, and shared tensors stay shared") {
  etude::SnapshotBuffers buffers;
  auto tensor = torch::tensor({1.0, 2.0});
  List first = {{"a", tensor}, {"b", tensor}}, second = {{"c", tensor}, {"d", tensor.clone()}};
  buffers.copy({&first, &second});
  tensor.fill_(9);
  for (const auto& copy : {first[0], first[1], second[0], second[1]}) {
    CAPTURE(copy.first);
    CHECK(torch::equal(copy.second, torch::tensor({1.0, 2.0})));
  }
  CHECK(first[0].second.data_ptr() == first[1].second.data_ptr());
  CHECK(first[0].second.data_ptr() == second[0].second.data_ptr());
  CHECK(first[0].second.data_ptr() != second[1].second.data_ptr());
}

TEST_CASE("a tensor and its conjugate or negative are copied separately") {
  etude::SnapshotBuffers buffers;
  const auto tensor = torch::complex(torch::tensor({1.0}), torch::tensor({2.0}));
  const auto imaginary = torch::imag(tensor.conj());
  REQUIRE(imaginary.is_neg());
  List list = {{"a", tensor}, {"b", tensor.conj()}, {"c", torch::imag(tensor)}, {"d", imaginary}};
  buffers.copy({&list});
  CHECK(torch::imag(list[0].second).item<double>() == 2);
  CHECK(torch::imag(list[1].second.resolve_conj()).item<double>() == -2);
  CHECK(list[2].second.item<double>() == 2);
  CHECK(list[3].second.item<double>() == -2);
}

}  // namespace checkpoint_snapshot_buffers_test
