#include "etude/callbacks/wsd_checkpoint.hpp"

#include <doctest/doctest.h>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/io/manifest.hpp"

namespace callbacks_wsd_checkpoint_test {

using etude::WSDCheckpointCallback;
using toy::Names;
using toy::names_in;

struct Rates {
  std::vector<double> rates = {};  // of each step
  void on(const etude::StepBegin& e) { rates.push_back(e.lr_scheduler->get_last_lr()); }
};
using Trainer = etude::Trainer<Rates, WSDCheckpointCallback>;

etude::TrainingArguments arguments(const std::string& folder, std::int64_t max_steps) {
  auto args = toy::arguments();
  args.output_dir = folder;
  args.max_steps = max_steps;
  args.lr_scheduler_type = etude::SchedulerType::warmup_stable_decay;
  args.lr_scheduler_kwargs = {{"num_decay_steps", 4}};
  args.warmup_steps = 2;
  return args;
}

TEST_CASE("the last step at the peak and the end of the decay are kept") {
  const toy::Folder folder;
  Trainer trainer(toy::options(arguments(folder, 12), 5));
  trainer.train();
  CHECK((names_in(folder / "wsd_checkpoints") ==
         Names{"checkpoint_8_wsd_pre_decay", "checkpoint_12_wsd_post_decay"}));
  CHECK(etude::read_manifest(folder / "wsd_checkpoints" / "checkpoint_8_wsd_pre_decay").global_step == 8);
  // The eighth step is at the peak, as the name suggests; from the tenth on the rate is lower.
  const auto& rates = trainer.callback<Rates>().rates;
  CHECK(rates[7] == .1);
  CHECK(rates[9] < .1);
}

TEST_CASE("a longer training continues from before the decay as if it had never decayed") {
  const toy::Folder folder, other;
  Trainer(toy::options(arguments(folder, 12), 5)).train();
  Trainer longer(toy::options(arguments(folder, 30), 5));
  longer.train({.resume_from_checkpoint = folder / "wsd_checkpoints" / "checkpoint_8_wsd_pre_decay"});
  Trainer whole(toy::options(arguments(other, 30), 5));
  whole.train();
  CHECK(torch::equal(longer.model().parameters()[0], whole.model().parameters()[0]));
  CHECK(longer.callback<Rates>().rates ==
        std::vector(whole.callback<Rates>().rates.begin() + 8, whole.callback<Rates>().rates.end()));
  CHECK(names_in(folder / "wsd_checkpoints").contains("checkpoint_26_wsd_pre_decay"));
  CHECK(names_in(folder / "wsd_checkpoints").contains("checkpoint_30_wsd_post_decay"));
}

TEST_CASE("a decay that ends before the training, and one that is cut short") {
  const toy::Folder folder;
  auto args = arguments(folder, 12);
  args.lr_scheduler_kwargs = {{"num_decay_steps", 4}, {"num_stable_steps", 3}};
  Trainer(toy::options(args, 5), WSDCheckpointCallback{.save_dir = folder / "over"}).train();
  CHECK((names_in(folder / "over") == Names{"checkpoint_5_wsd_pre_decay", "checkpoint_9_wsd_post_decay"}));
  args.max_steps = 7;
  Trainer(toy::options(args, 5), WSDCheckpointCallback{.save_dir = folder / "short"}).train();
  CHECK((names_in(folder / "short") == Names{"checkpoint_5_wsd_pre_decay", "checkpoint_7_wsd_post_decay"}));
}

TEST_CASE("another schedule is refused by name") {
  const toy::Folder folder;
  auto args = arguments(folder, 12);
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.lr_scheduler_kwargs = nlohmann::json::object();
  Trainer trainer(toy::options(args));
  CHECK_THROWS_WITH_AS(trainer.train(),
                       "lr_scheduler_type is constant: WSDCheckpointCallback needs warmup_stable_decay",
                       etude::ArgumentError);
  auto options = toy::options(arguments(folder, 12));
  options.lr_scheduler = [](std::int64_t) { return 1.0; };
  Trainer own(options);
  CHECK_THROWS_AS(own.train(), etude::ArgumentError);
}

}  // namespace callbacks_wsd_checkpoint_test
