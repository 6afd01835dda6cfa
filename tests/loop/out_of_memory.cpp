#include <c10/util/Exception.h>
#include <doctest/doctest.h>
#include <signal.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/logged.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/norm_monitor.hpp"
#include "etude/callbacks/run_history.hpp"
#include "etude/libtorch/memory.hpp"

namespace loop_out_of_memory_test {

// When memory runs out, training continues with smaller parts, and the failed attempt leaves no trace.

/// Runs out of memory with more than `room` examples. Random numbers and a running sum in its output reveal
/// traces of a failed attempt.
struct SmallImpl : torch::nn::Module {
  explicit SmallImpl(std::int64_t room_ = 1'000'000, double noise_ = 0) : room(room_), noise(noise_) {}
  torch::Tensor forward(torch::Tensor x) {
    if (is_training()) {
      sizes.push_back(x.size(0));
      seen.add_(x.size(0));
    }
    const auto y = x * weight + noise * torch::randn_like(x);
    if (x.size(0) > room && std::ssize(sizes) > roomy_calls)
      throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "DefaultCPUAllocator: can't allocate memory");
    return y;
  }
  std::int64_t room;
  double noise;
  std::int64_t roomy_calls = 0;  // number of first training calls with room for everything
  std::vector<std::int64_t> sizes;
  torch::Tensor weight = register_parameter("weight", torch::ones({1}));
  torch::Tensor seen = register_buffer("seen", torch::zeros({}));
};
TORCH_MODULE(Small);

etude::TrainerOptions ten(Small model, etude::TrainingArguments args,
                          etude::Loss loss = torch::nn::MSELoss()) {
  args.per_device_train_batch_size = 10;
  args.num_train_epochs = 2;
  return {.model = model, .args = args, .loss = std::move(loss), .train_dataset = toy::dataset(25)};
}

/// Plain SGD without clipping, so that the weights show the size of the gradients.
etude::TrainingArguments descent() {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_norm = 0;
  return args;
}

template <class... Callbacks>
using Bare = etude::Trainer<etude::NoDefaultCallbacks, Callbacks...>;

double weight_after(Small model, const etude::TrainingArguments& args,
                    etude::Loss loss = torch::nn::MSELoss()) {
  Bare<> trainer(ten(model, args, std::move(loss)));
  trainer.train();
  return model->weight.item<double>();
}

TEST_CASE("the errors that count as running out of memory") {
  const auto is = [](auto error) { return etude::is_out_of_memory(std::make_exception_ptr(error)); };
  CHECK(is(std::bad_alloc()));
  CHECK(is(c10::OutOfMemoryError({"f", "file", 1}, "CUDA out of memory. Tried to allocate 2 GiB")));
  CHECK(is(
      c10::Error({"f", "file", 1}, "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")));
  CHECK_FALSE(is(c10::Error({"f", "file", 1}, "mat1 and mat2 shapes cannot be multiplied")));
  CHECK_FALSE(is(std::runtime_error("out of memory")));
}

TEST_CASE("auto_find_batch_size restarts with nine tenths until it fits, from the initial weights") {
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  const Small small(8, 0.1);
  Bare<toy::Recorder> trainer(ten(small, args));
  const auto output = trainer.train();
  CHECK(trainer.state().train_batch_size == 8);  // 10, 9, 8
  CHECK(output.global_step == 2 * 4);
  CHECK(trainer.callback<toy::Recorder>().count("TrainBegin") == 3);
  CHECK(trainer.callback<toy::Recorder>().count("TrainEnd") == 3);
  CHECK(trainer.callback<toy::Recorder>().count("TrainError") == 0);

  auto fits = toy::arguments();
  fits.per_device_train_batch_size = 8;
  const Small roomy(1000, 0.1);
  auto options = ten(roomy, fits);
  options.args.per_device_train_batch_size = 8;
  Bare<> other(std::move(options));
  other.train();
  CHECK(small->weight.item<double>() == roomy->weight.item<double>());
  CHECK(small->seen.item<double>() == roomy->seen.item<double>());
}

struct CountsBatches {
  ETUDE_STRUCT(CountsBatches, (std::int64_t, count, "batches that came", 0));
  void on(const etude::BatchFetched&) { ++count; }
};

TEST_CASE("auto_find_batch_size restores the state of callbacks") {
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  Bare<CountsBatches> trainer(ten(Small(8), args), CountsBatches{.count = 100});
  trainer.train();
  CHECK(trainer.state().train_batch_size == 8);
  CHECK(trainer.callback<CountsBatches>().count == 100 + 2 * 4);
}

TEST_CASE("auto_find_batch_size gives up at one example, and passes other errors on") {
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  Bare<> none(ten(Small(0), args));
  CHECK_THROWS_AS(none.train(), c10::OutOfMemoryError);
  Bare<> off(ten(Small(5), toy::arguments()));
  CHECK_THROWS_AS(off.train(), c10::OutOfMemoryError);
}

/// Resumes after the second step of a training that had to reduce its batches from ten to eight.
etude::TrainerState resumed_with(Small model, std::int64_t asked, const toy::Folder& folder) {
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  toy::save_to(folder, args);
  auto options = ten(model, args);
  options.args.per_device_train_batch_size = asked;
  Bare<toy::Recorder> trainer(std::move(options));
  trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  return trainer.state();
}

TEST_CASE("a resumed run keeps the batch size that was found, and the steps of the uninterrupted one") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  toy::save_to(folder, args);
  const Small small(8, 0.1);
  Bare<etude::DefaultFlowCallback> unbroken(ten(small, args));
  CHECK(unbroken.train().global_step == 8);

  // A batch of ten isn't tried again, whether there is as much room as before or more.
  for (const std::int64_t room : {8, 1000}) {
    CAPTURE(room);
    const Small again(room, 0.1);
    const auto state = resumed_with(again, 10, folder);
    CHECK(state.train_batch_size == 8);
    CHECK(state.global_step == 8);
    CHECK(again->sizes == std::vector<std::int64_t>{8, 1, 8, 8, 8, 1});
    CHECK(again->weight.item<double>() == small->weight.item<double>());
  }
}

TEST_CASE("a checkpoint's batch size is overridden by a new argument, and by less memory") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.auto_find_batch_size = true;
  toy::save_to(folder, args);
  Bare<etude::DefaultFlowCallback>(ten(Small(8), args)).train();
  CHECK(resumed_with(Small(1000), 12, folder).train_batch_size == 12);
  CHECK(resumed_with(Small(6), 10, folder).train_batch_size == 6);
  // A checkpoint of Hugging Face's Trainer has the size only in trainer_state.json.
  for (const auto* file : {"training_args.json", "training_progress.json", "etude_manifest.json"})
    REQUIRE(std::filesystem::remove(folder / "checkpoint-2" / file));
  CHECK(resumed_with(Small(1000), 10, folder).train_batch_size == 8);
}

TEST_CASE("a resumed run continues with the parts that fitted, in the middle of an accumulation too") {
  struct Signal {
    void on(const etude::SubstepEnd& e) {
      if (e.state.global_step == 2) ::raise(SIGTERM);
    }
  };
  const auto before = ::signal(SIGTERM, [](int) {});  // a program's own handler, which returns
  const toy::Folder folder, other;
  auto args = descent();
  args.auto_microbatching = true;
  args.gradient_accumulation_steps = 2;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  toy::save_to(other, args);
  const Small whole(3, 0.1);
  Bare<etude::DefaultFlowCallback> unbroken(ten(whole, args));
  unbroken.train();

  toy::save_to(folder, args);
  CHECK_THROWS_AS((Bare<etude::DefaultFlowCallback, Signal>(ten(Small(3, 0.1), args)).train()),
                  etude::Interrupted);
  const Small roomy(1000, 0.1);
  Bare<etude::DefaultFlowCallback> resumed(ten(roomy, args));
  resumed.train({.resume_from_checkpoint = true});
  CHECK(resumed.state().global_step == 4);
  CHECK(roomy->weight.item<double>() == whole->weight.item<double>());
  CHECK(toy::logged(resumed.state(), "loss") == toy::logged(unbroken.state(), "loss"));
  ::signal(SIGTERM, before);
}

TEST_CASE("auto_microbatching computes the whole batch's update from parts that fit") {
  for (const std::int64_t accumulation : {1, 2}) {
    CAPTURE(accumulation);
    auto args = descent();
    args.gradient_accumulation_steps = accumulation;
    const auto whole = weight_after(Small(1000), args);
    args.auto_microbatching = true;
    const Small small(3);
    CHECK(weight_after(small, args) == doctest::Approx(whole).epsilon(1e-6));
    CHECK(small->seen.item<double>() == 2 * 25);  // each example once, despite abandoned attempts
    CHECK(small->sizes[0] == 10);
    CHECK(small->sizes[1] == 5);
    CHECK(small->sizes[2] == 3);  // 3 + 3 + 3 + 1 from here on
    CHECK(std::ranges::count(small->sizes, 10) == 1);
    CHECK(std::ranges::count(small->sizes, 5) == 1);
  }
}

struct LogsSizes {
  void on(const etude::BackwardEnd& e) { e.log("size", static_cast<double>(e.batch.size)); }
};

TEST_CASE("callbacks count a restarted group once") {
  const auto train = [](const Small& model, bool in_parts) {
    auto args = descent();
    args.gradient_accumulation_steps = 2;
    args.logging_strategy = etude::IntervalStrategy::steps;
    args.logging_steps = 1;
    args.auto_microbatching = in_parts;
    auto trainer =
        std::make_unique<Bare<etude::DefaultFlowCallback, LogsSizes, etude::RunHistoryCallback,
                              etude::LossSpikeCallback, etude::GradientNormMonitor, toy::Recorder>>(
            ten(model, args), etude::LossSpikeCallback{.check_every_n_steps = 1},
            etude::GradientNormMonitor{.every_n_steps = 1});
    trainer->train();
    return trainer;
  };
  Small small(5);
  small->roomy_calls = 1;  // The first micro-batch fits, and memory runs out in the second.
  const auto whole = train(Small(1000), false), parts = train(small, true);
  REQUIRE(small->sizes[0] == 10);
  REQUIRE(small->sizes[1] == 10);
  REQUIRE(small->sizes[2] == 5);
  CHECK(parts->callback<toy::Recorder>().count("StepRestarted") == 1);
  CHECK(parts->callback<toy::Recorder>().count("StepBegin") == 4);
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    REQUIRE_FALSE(a.empty());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-6));
  };
  const auto history = [](auto& trainer) {
    return trainer->template callback<etude::RunHistoryCallback>().history().get_metric_values(
        "train_loss_epoch");
  };
  same(history(parts), history(whole));
  same(parts->callback<etude::LossSpikeCallback>().state.losses,
       whole->callback<etude::LossSpikeCallback>().state.losses);
  same(toy::logged(parts->state(), "l2_norm/grad/global"),
       toy::logged(whole->state(), "l2_norm/grad/global"));
  CHECK(toy::logged(whole->state(), "size") == std::vector<double>{10, 5, 10, 5});
  CHECK(toy::logged(parts->state(), "size") == std::vector<double>{5, 5, 5, 5});
}

TEST_CASE("parts of a loss that is a sum over items aren't weighted twice") {
  const auto sum_over_items = [](const torch::Tensor& y, const torch::Tensor& target, double items) {
    return (y - target).square().sum() / items;
  };
  auto args = descent();
  const auto whole = weight_after(Small(1000), args, sum_over_items);
  args.auto_microbatching = true;
  CHECK(weight_after(Small(3), args, sum_over_items) == doctest::Approx(whole).epsilon(1e-6));
}

struct DoublesInputs {
  void on(etude::ForwardBegin& e) {
    e.batch.inputs = e.batch.inputs.transform([](const torch::Tensor& x) { return 2 * x; });
  }
};

TEST_CASE("a callback changes each part of a batch once, despite abandoned attempts") {
  const auto weight = [](const Small& model, bool in_parts) {
    auto args = descent();
    args.auto_microbatching = in_parts;
    Bare<DoublesInputs> trainer(ten(model, args));
    trainer.train();
    return model->weight.item<double>();
  };
  CHECK(weight(Small(3), true) == doctest::Approx(weight(Small(1000), false)).epsilon(1e-6));
}

TEST_CASE("auto_microbatching is refused with an optimizer that evaluates whole batches repeatedly") {
  auto args = toy::arguments();
  args.optim = etude::OptimizerNames::lbfgs;
  args.auto_microbatching = true;
  Bare<> trainer(ten(Small(1000), args));
  CHECK_THROWS_WITH_AS(trainer.train(), doctest::Contains("auto_microbatching is true"),
                       etude::ArgumentError);
}

TEST_CASE("with auto_microbatching, a single example that doesn't fit is an error") {
  auto args = toy::arguments();
  args.auto_microbatching = true;
  Bare<> trainer(ten(Small(0), args));
  CHECK_THROWS_AS(trainer.train(), c10::OutOfMemoryError);
}

/// A batch of ten images, the numbers 1 to 10, with as many boxes as image i % 3 has, in one tensor [boxes,
/// 2]: the image in the batch, and the number 1 to 10.
etude::Batch numbers_with_boxes(bool says_how) {
  std::vector<torch::Tensor> rows;
  for (std::int64_t i = 0; i < 10; ++i)
    rows.push_back(torch::tensor({static_cast<float>(i), static_cast<float>(i + 1)}).repeat({i % 3, 1}));
  etude::Batch batch{torch::arange(1, 11).to(torch::kFloat).reshape({10, 1}), torch::cat(rows), 10};
  if (says_how) batch.labels.set_division(0, etude::RowsByIndex{});
  return batch;
}

/// The sum, over all boxes, of the output for the box's image times the box's number, divided by the number
/// of images.
etude::LossOutput loss_of_boxes(etude::Model& model, const etude::Batch& batch, std::optional<double>) {
  const auto outputs = model.forward(batch)[0];
  const auto& boxes = batch.labels[0];
  const auto own = outputs.squeeze(1).index_select(0, boxes.select(1, 0).to(torch::kLong));
  return {.loss = (own * boxes.select(1, 1)).sum() / static_cast<double>(batch.size), .outputs = outputs};
}

TEST_CASE("parts of a batch whose boxes are in one tensor have the boxes of their images") {
  const auto weight_of = [](std::int64_t room, bool says_how) {
    Small model(room);
    auto args = descent();
    args.auto_microbatching = true;
    args.max_steps = 1;
    args.lr_scheduler_type = etude::SchedulerType::constant;
    args.learning_rate = 1e-4;
    etude::Trainer<etude::NoDefaultCallbacks> trainer(
        {.model = model, .args = args, .compute_loss = loss_of_boxes});
    trainer.step(numbers_with_boxes(says_how));
    trainer.finish();
    return model->weight.item<double>();
  };
  // d loss / d weight: the sum of the squares of the boxes' numbers over ten. One box each: images 2, 5 and
  // 8; two each: 3, 6 and 9.
  const double slope = (4 + 25 + 64 + 2 * (9 + 36 + 81)) / 10.0;
  CHECK(weight_of(1000, true) == doctest::Approx(1 - 1e-4 * slope).epsilon(1e-6));
  CHECK(weight_of(3, true) == doctest::Approx(1 - 1e-4 * slope).epsilon(1e-6));
  // Refused with the first batch, whether memory runs out or not.
  for (const std::int64_t room : {3, 1000})
    CHECK_THROWS_WITH_AS(
        weight_of(room, false),
        doctest::Contains("auto_microbatching divides batches, and label 0 is float32 [9, 2] in a "
                          "batch of 10 examples"),
        etude::DataError);
}

}  // namespace loop_out_of_memory_test
