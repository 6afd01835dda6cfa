/// Makes Etude's optimizers and times their steps for run.py, which sends one request per line of standard
/// input and reads one line of JSON for each:
///   about                                         the names of all optimizers, and the devices
///   make NAME COUNT ROWS COLUMNS DEVICE THREADS   an optimizer for COUNT matrices, which takes a step
///   step STEPS                                    the seconds of that many steps

#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/utils.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "../measure.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/create.hpp"

namespace {

class Session {
 public:
  nlohmann::json answer(const std::string& line) {
    std::istringstream request(line);
    std::string verb;
    request >> verb;
    if (verb == "about") return about();
    if (verb == "make") return make(request);
    if (verb == "step") return step(request);
    throw std::runtime_error(fmt::format("the request is '{}': must begin with about, make or step", line));
  }

 private:
  static nlohmann::json about() {
    nlohmann::json devices{"cpu"};
    if (torch::cuda::is_available()) devices.push_back("cuda");
    return {{"names", etude::enum_names<etude::OptimizerNames>}, {"devices", devices}};
  }

  nlohmann::json make(std::istream& request) {
    std::string name, device;
    std::int64_t count = 0, rows = 0, columns = 0;
    int threads = 0;
    request >> name >> count >> rows >> columns >> device >> threads;
    optimizer_.reset();
    device_ = torch::Device(device);
    at::set_num_threads(threads);
    etude::NamedTensors parameters;
    for (std::int64_t i = 0; i < count; ++i) {
      auto tensor = torch::randn({rows, columns}, device_).set_requires_grad(true);
      tensor.mutable_grad() = torch::randn_like(tensor.detach());
      parameters.emplace_back(fmt::format("{}.weight", i), tensor);
    }
    const auto optim = etude::from_string<etude::OptimizerNames>(name);
    if (etude::traits_of(optim).needs_closure) return {{"left_out", "needs a closure"}};
    optimizer_ = etude::make_optimizer(
        etude::TrainingArguments{.optim = optim, .learning_rate = 1e-3, .weight_decay = 0}, parameters);
    try {
      run(1);
    } catch (const etude::ArgumentError& error) {  // for example, it takes only sparse gradients
      return {{"left_out", error.what()}};
    }
    return {{"made", name}};
  }

  nlohmann::json step(std::istream& request) {
    int steps = 0;
    request >> steps;
    return {{"seconds", bench::seconds([&] { run(steps); })}};
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) optimizer_->step();
    if (device_.is_cuda()) torch::cuda::synchronize();
  }

  std::unique_ptr<etude::Optimizer> optimizer_;
  torch::Device device_{torch::kCPU};
};

}  // namespace

int main() {
  Session session;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << session.answer(line).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cerr << line << ": " << error.what() << '\n';
      return 1;
    }
  }
}
