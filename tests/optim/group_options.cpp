#include "etude/optim/group_options.hpp"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>
#include <memory>

#include "etude/base/error.hpp"
#include "etude/optim/optimizers.hpp"
#include "etude/optim/torch_optimizer.hpp"

#include <doctest/doctest.h>  // last, since LibTorch defines a CHECK too

namespace optim_group_options_test {

using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

/// Two groups; the second one has different rates.
std::vector<etude::ParameterGroup> groups() {
  const auto parameter = [] { return torch::ones({2}, at::kDouble).set_requires_grad(true); };
  return {{.parameters = {{"a", parameter()}}, .lr = {}, .weight_decay = {}},
          {.parameters = {{"b", parameter()}}, .lr = 0.5, .weight_decay = 0.0}};
}

/// Round-trips through JSON text, as in a file.
Json stored(etude::Optimizer& optimizer) { return Json::parse(optimizer.options_state().dump()); }

/// A torch optimizer with one parameter; `change` may change the optimizer's options.
template <typename Optimizer, typename Options>
std::unique_ptr<etude::TorchOptimizer> torchs(
    Options options, const std::function<void(Options&)>& change = [](Options&) {}) {
  const torch::Tensor parameter = torch::ones({2}, at::kDouble).set_requires_grad(true);
  auto inner = std::make_shared<Optimizer>(std::vector{parameter}, options);
  auto result = std::make_unique<etude::TorchOptimizer>(inner, etude::NamedTensors{{"a", parameter}});
  change(static_cast<Options&>(inner->param_groups()[0].options()));
  return result;
}

/// Checks that a second run's torch optimizer, after loading, has the options that the first run changed.
template <typename Optimizer, typename Options>
void check_restored(const Options& given, const char* type, const std::function<void(Options&)>& change) {
  const auto first = torchs<Optimizer, Options>(given, change), second = torchs<Optimizer, Options>(given);
  const Json saved = stored(*first);
  CHECK(saved["type"] == type);
  CHECK(second->options_state()["changed"] == Json::array({Json::object()}));
  // Each option but the initial rate was changed.
  CHECK(saved["changed"][0].size() == saved["given"][0].size() - 1);
  Lines differences;
  CHECK_FALSE(second->load_options(saved, differences));
  CHECK(differences.empty());
  CHECK(stored(*second) == saved);
  const auto options = [](etude::TorchOptimizer& optimizer) -> Options& {
    return static_cast<Options&>(optimizer.torch_optimizer().param_groups()[0].options());
  };
  CHECK(options(*first) == options(*second));
}

TEST_CASE("the options that the steps depend on are stored: the initial values and those that changed") {
  etude::AdamW optimizer(groups(), {.lr = 0.25, .weight_decay = 0.125});
  CHECK(optimizer.options_state().dump() ==
        R"({"type":"AdamW","given":[)"
        R"({"lr":0.25,"beta1":0.9,"beta2":0.999,"eps":1e-08,"weight_decay":0.125,"amsgrad":false,)"
        R"("fused":true,"rounding":"kahan","seed":0,"initial_lr":0.25},)"
        R"({"lr":0.5,"beta1":0.9,"beta2":0.999,"eps":1e-08,"weight_decay":0.0,"amsgrad":false,)"
        R"("fused":true,"rounding":"kahan","seed":0,"initial_lr":0.5}],"changed":[{},{}]})");
  optimizer.param_groups()[0].lr = 0.0625;
  optimizer.param_groups()[1].weight_decay = 3;
  CHECK(optimizer.options_state()["changed"].dump() == R"([{"lr":0.0625},{"weight_decay":3.0}])");
  CHECK(optimizer.options_state()["given"][0]["lr"] == 0.25);
}

TEST_CASE("each optimizer stores its type and all its options") {
  const auto check = [](auto&& optimizer, const char* type, const auto& options) {
    const Json state = optimizer.options_state();
    CHECK(state["type"] == type);
    for (const std::string_view name : etude::field_names<std::remove_cvref_t<decltype(options)>>())
      CHECK(state["given"][0].contains(name));
  };
  check(etude::Adam(groups()), "Adam", etude::AdamOptions());
  check(etude::SGD(groups()), "SGD", etude::SGDOptions());
  check(etude::RMSprop(groups()), "RMSprop", etude::RMSpropOptions());
  check(etude::Adagrad(groups()), "Adagrad", etude::AdagradOptions());
  check(etude::Lion(groups()), "Lion", etude::LionOptions());
  check(etude::NAdam(groups()), "NAdam", etude::NAdamOptions());
  check(etude::RAdam(groups()), "RAdam", etude::RAdamOptions());
  check(etude::Adamax(groups()), "Adamax", etude::AdamaxOptions());
  check(etude::Adadelta(groups()), "Adadelta", etude::AdadeltaOptions());
  check(etude::ASGD(groups()), "ASGD", etude::ASGDOptions());
  check(etude::Rprop(etude::parameter_groups(groups()[0].parameters, 0)), "Rprop", etude::RpropOptions());
  check(etude::AdEMAMix(groups()), "AdEMAMix", etude::AdEMAMixOptions());
  check(etude::Adafactor(groups()), "Adafactor", etude::AdafactorOptions());
  check(etude::AdamW8bit(groups()), "AdamW8bit", etude::AdamW8bitOptions());
  check(etude::Lion8bit(groups()), "Lion8bit", etude::Lion8bitOptions());
  check(etude::LBFGS(etude::parameter_groups(groups()[0].parameters, 0)), "LBFGS", etude::LBFGSOptions());
}

TEST_CASE("a run that gets the same options continues with their current values") {
  etude::AdamW first(groups(), {.lr = 0.25});
  first.param_groups()[0].lr = 0.1;
  first.param_groups()[1].initial_lr = 0.3;
  first.param_groups()[1].weight_decay = 0.7;
  etude::AdamW second(groups(), {.lr = 0.25});
  second.param_groups()[0].lr = 99;  // as if set by a scheduler
  Lines differences;
  CHECK_FALSE(second.load_options(stored(first), differences));
  CHECK(differences.empty());
  CHECK(second.param_groups()[0].lr == 0.1);
  CHECK(second.param_groups()[0].initial_lr == 0.25);
  CHECK(second.param_groups()[1].lr == 0.5);
  CHECK(second.param_groups()[1].initial_lr == 0.3);
  CHECK(second.param_groups()[1].weight_decay == 0.7);
  CHECK(stored(second) == stored(first));
}

TEST_CASE("a different option wins, with the initial rate, and is reported; the other group is untouched") {
  etude::AdamW first(groups(), {.lr = 0.25, .weight_decay = 0.125});
  for (auto& group : first.param_groups()) group.lr *= 0.1;
  etude::AdamW second(groups(), {.lr = 1, .beta1 = 0.8, .weight_decay = 0.25});
  Lines differences;
  CHECK(second.load_options(stored(first), differences));
  CHECK(differences == Lines{"param_groups[0].lr: 0.25 -> 1.0", "param_groups[0].beta1: 0.9 -> 0.8",
                             "param_groups[0].weight_decay: 0.125 -> 0.25",
                             "param_groups[1].beta1: 0.9 -> 0.8"});
  CHECK(second.param_groups()[0].lr == 1);
  CHECK(second.param_groups()[0].initial_lr == 1);
  CHECK(second.param_groups()[0].weight_decay == 0.25);
  CHECK(second.param_groups()[1].lr == 0.5 * 0.1);
  CHECK(second.param_groups()[1].initial_lr == 0.5);
  // The next checkpoint stores these as given.
  CHECK(second.options_state()["changed"].dump() == R"([{},{"lr":0.05}])");
}

TEST_CASE("a fixed option that a file lists as changed keeps the given value, and that is reported") {
  etude::AdamW optimizer(groups());
  Json saved = stored(optimizer);
  saved["changed"][1]["beta1"] = 0.7;
  saved["changed"][1]["of_a_later_version"] = 1;
  saved["given"][0].erase("eps");  // as in an earlier version
  Lines differences;
  CHECK_FALSE(optimizer.load_options(saved, differences));
  CHECK(differences == Lines{"param_groups[1].beta1: 0.7 -> 0.9"});
}

TEST_CASE("only the rates of another type of optimizer are used") {
  etude::SGD first(groups(), {.lr = 0.25, .weight_decay = 0.5});
  for (auto& group : first.param_groups()) group.lr *= 0.5;
  etude::Adagrad second(groups(), {.lr = 0.25, .weight_decay = 0.75, .eps = 1e-3});
  Lines differences;
  CHECK_FALSE(second.load_options(stored(first), differences));
  CHECK(differences == Lines{"optimizer: SGD -> Adagrad", "param_groups[0].weight_decay: 0.5 -> 0.75"});
  CHECK(second.param_groups()[0].lr == 0.125);
  CHECK(second.param_groups()[0].weight_decay == 0.75);
}

TEST_CASE("torch's options, which may change at any time, are all restored") {
  using namespace torch::optim;
  const auto adam = [](auto& options) {
    options.lr(0.5).betas({0.7, 0.75}).eps(0.1).weight_decay(0.3).amsgrad(true);
  };
  check_restored<Adam, AdamOptions>(AdamOptions(0.1), "Adam", adam);
  check_restored<AdamW, AdamWOptions>(AdamWOptions(0.1), "AdamW", adam);
  check_restored<SGD, SGDOptions>(SGDOptions(0.1).dampening(0.5), "SGD", [](SGDOptions& options) {
    options.lr(0.5).momentum(0.25).dampening(0).weight_decay(0.3).nesterov(true);
  });
  check_restored<RMSprop, RMSpropOptions>(RMSpropOptions(0.1), "RMSprop", [](RMSpropOptions& options) {
    options.lr(0.5).alpha(0.25).eps(0.1).weight_decay(0.3).momentum(0.7).centered(true);
  });
  check_restored<Adagrad, AdagradOptions>(AdagradOptions(0.1), "Adagrad", [](AdagradOptions& options) {
    options.lr(0.5).lr_decay(0.25).weight_decay(0.3).initial_accumulator_value(0.7).eps(0.1);
  });
  check_restored<LBFGS, LBFGSOptions>(LBFGSOptions(0.1), "LBFGS", [](LBFGSOptions& options) {
    options.lr(0.5).max_iter(3).max_eval(4).tolerance_grad(0.1).tolerance_change(0.2).history_size(7);
    options.line_search_fn("strong_wolfe");
  });
}

TEST_CASE("torch's options that are given with other values win, and are reported") {
  using torch::optim::SGDOptions;
  const auto first =
      torchs<torch::optim::SGD>(SGDOptions(0.5).momentum(0.5),
                                std::function([](SGDOptions& options) { options.lr(0.1).momentum(0.7); }));
  const auto second = torchs<torch::optim::SGD>(SGDOptions(0.25).momentum(0.5).weight_decay(0.5));
  Lines differences;
  CHECK(second->load_options(stored(*first), differences));
  CHECK(differences == Lines{"param_groups[0].lr: 0.5 -> 0.25", "param_groups[0].weight_decay: 0.0 -> 0.5"});
  const auto& options = static_cast<SGDOptions&>(second->torch_optimizer().param_groups()[0].options());
  CHECK(options.lr() == 0.25);
  CHECK(options.momentum() == 0.7);
  CHECK(options.weight_decay() == 0.5);
}

TEST_CASE("a rate that was set in Etude's optimizer is stored, and restored in torch's too") {
  using torch::optim::SGDOptions;
  const auto first = torchs<torch::optim::SGD>(SGDOptions(0.5)),
             second = torchs<torch::optim::SGD>(SGDOptions(0.5));
  first->param_groups()[0].lr = 0.125;
  Lines differences;
  second->load_options(stored(*first), differences);
  CHECK(second->param_groups()[0].lr == 0.125);
  CHECK(second->torch_optimizer().param_groups()[0].options().get_lr() == 0.125);
  CHECK(second->param_groups()[0].initial_lr == 0.5);
}

TEST_CASE("Etude's and torch's optimizer of one kind read each other's options") {
  const auto theirs = torchs<torch::optim::AdamW>(torch::optim::AdamWOptions(0.5).weight_decay(0.25));
  theirs->param_groups()[0].lr = 0.125;
  etude::AdamW ours({groups()[0]}, {.lr = 0.5, .weight_decay = 0.25});
  Lines differences;
  CHECK_FALSE(ours.load_options(stored(*theirs), differences));
  CHECK(differences.empty());
  CHECK(ours.param_groups()[0].lr == 0.125);
}

TEST_CASE("impossible options are refused by name, and nothing is changed") {
  const auto refuses = [](etude::Optimizer& optimizer, const Json& saved, const char* text) {
    const Json before = stored(optimizer);
    Lines differences;
    CHECK_THROWS_WITH_AS(optimizer.load_options(saved, differences), doctest::Contains(text),
                         etude::CheckpointError);
    CHECK(stored(optimizer) == before);
    CHECK(differences.empty());
  };
  etude::AdamW ours(groups());
  const Json good = stored(ours);
  const auto with = [](Json saved, const char* name, const Json& value) {
    saved["changed"].back()[name] = value;
    return saved;
  };
  refuses(ours, with(good, "lr", -0.5), "param_groups[1].lr is -0.5: must be at least 0 and finite");
  refuses(ours, with(good, "lr", "Infinity"), "param_groups[1].lr is inf: must be at least 0 and finite");
  refuses(ours, with(good, "lr", "NaN"), "param_groups[1].lr is nan");
  refuses(ours, with(good, "lr", "fast"), "param_groups[1].lr is \"fast\": must be a number");
  refuses(ours, with(good, "lr", nullptr), "param_groups[1].lr is null");
  refuses(ours, with(good, "initial_lr", -1), "param_groups[1].initial_lr is -1");
  refuses(ours, with(good, "weight_decay", {1}), "param_groups[1].weight_decay is [1]");
  Json bad = good;
  bad["given"].erase(1);
  refuses(ours, bad, "1 parameter group in its optimizer's 'given', but the optimizer has 2");
  bad = good;
  bad["changed"].push_back(Json::object());
  refuses(ours, bad, "3 parameter groups in its optimizer's 'changed', but the optimizer has 2");
  bad = good;
  bad["given"][1] = 5;
  refuses(ours, bad, "'given' must be objects, not 5");
  bad = good;
  bad["changed"] = Json::object();
  refuses(ours, bad, "must have a list 'changed'");
  bad = good;
  bad["type"] = 1;
  refuses(ours, bad, "must have a string 'type'");
  for (const Json& nothing : {Json(), Json::array(), Json("text"), Json(7), Json::object()})
    refuses(ours, nothing, "must have a string 'type'");

  const auto adam = torchs<torch::optim::Adam>(torch::optim::AdamOptions(0.1));
  refuses(*adam, with(stored(*adam), "beta1", 1),
          "param_groups[0].beta1 is 1: must be at least 0 and below 1");
  refuses(*adam, with(stored(*adam), "amsgrad", 2), "param_groups[0].amsgrad is 2: must be true or false");
  refuses(*adam, with(stored(*adam), "initial_lr", "NaN"), "param_groups[0].initial_lr is nan");
  const auto sgd = torchs<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  refuses(*sgd, with(stored(*sgd), "dampening", "Infinity"), "dampening is inf: must be finite");
  refuses(*sgd, with(stored(*sgd), "nesterov", true), "nesterov is true: momentum must be above 0");
  const auto lbfgs = torchs<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1));
  refuses(*lbfgs, with(stored(*lbfgs), "max_iter", 0), "max_iter is 0: must be at least 1");
  refuses(*lbfgs, with(stored(*lbfgs), "max_iter", 1.5), "max_iter is 1.5: must be a whole number");
  refuses(*lbfgs, with(stored(*lbfgs), "max_eval", -3), "max_eval is -3: must be at least 1");
  refuses(*lbfgs, with(stored(*lbfgs), "line_search_fn", "wolf"), "line_search_fn is \"wolf\"");
}

}  // namespace optim_group_options_test
