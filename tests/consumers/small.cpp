#include <torch/types.h>
#include <torch/version.h>

#include <cstdio>
#include <etude/version.hpp>

/// Shows that LibTorch is found and linked, without the minutes that a trainer takes to compile.
int main() {
  const auto four = torch::full({2, 2}, 2.0).matmul(torch::ones({2, 1})).max();
  std::printf("Etude %d, LibTorch %s: 2 + 2 = %g\n", ETUDE_VERSION, TORCH_VERSION, four.item<double>());
}
