#include "etude/callbacks/move_modules_to_device.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_move_modules_to_device_test {

using Callback = etude::MoveModulesToDeviceCallback;

/// Records the devices that it is moved to.
struct TravellerImpl : torch::nn::Module {
  using torch::nn::Module::to;
  void to(torch::Device device, bool non_blocking = false) override {
    moves.push_back(device);
    torch::nn::Module::to(device, non_blocking);
  }
  std::vector<torch::Device> moves;
};
TORCH_MODULE(Traveller);

TEST_CASE("its modules are moved to the model's device before training, an evaluation and a prediction") {
  Traveller holder;
  const auto pointer = std::make_shared<TravellerImpl>();
  struct Looks {
    std::shared_ptr<TravellerImpl> module;
    std::vector<std::size_t> moves = {};
    void on(const etude::ForwardBegin&) { moves.push_back(module->moves.size()); }
    void on(const etude::PredictionStepBegin&) { moves.push_back(module->moves.size()); }
  };
  etude::Trainer trainer(toy::options(toy::arguments(), 1), Callback(holder, pointer), Looks{pointer});
  CHECK(pointer->moves.empty());
  trainer.train();
  trainer.evaluate();
  trainer.predict(toy::points(1).first);
  CHECK(trainer.callback<Looks>().moves == std::vector<std::size_t>{1, 2, 3});
  const auto device = trainer.model().parameters().front().device();
  CHECK(pointer->moves == std::vector<torch::Device>(3, device));
  CHECK(holder->moves == pointer->moves);
}

TEST_CASE("an empty list of modules is refused") {
  const std::string refusal = "MoveModulesToDeviceCallback: a module is a null pointer or an empty holder";
  CHECK_THROWS_WITH_AS(Callback(std::shared_ptr<TravellerImpl>()), refusal.c_str(), etude::ArgumentError);
  CHECK_THROWS_WITH_AS(Callback(Traveller(), Traveller(nullptr)), refusal.c_str(), etude::ArgumentError);
}

}  // namespace callbacks_move_modules_to_device_test
