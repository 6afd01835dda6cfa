/// Trains in one of several processes, which run.py starts with the variables of torchrun. `parallel_bench
/// export DIR` writes the data, order and initial weights of each workload. `parallel_bench serve DIR`
/// prints "ready", then answers each line `policy workload steps warmup ddp_bucket_cap_mb` with a line of
/// JSON. `parallel_bench messages` prints how long sums of several sizes take.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <etude/etude.hpp>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "etude/formats/safetensors.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/gloo.hpp"
#include "etude/parallel/shared_memory.hpp"
#include "network.hpp"
#include "observer.hpp"

namespace bench {
namespace {

constexpr std::int64_t longest_training = 5'000;  // steps
constexpr double learning_rate = 1e-3, weight_decay = 0.01;

void export_all(const std::filesystem::path& folder) {
  const auto seed = static_cast<std::uint64_t>(etude::TrainingArguments().seed);
  for (const auto& workload : parallel_workloads()) {
    torch::manual_seed(1);
    const auto [inputs, targets] = workload.examples();
    std::vector<std::int64_t> order;  // as in Etude's loader with its default seed
    for (std::int64_t epoch = 0; std::ssize(order) < longest_training * workload.batch_size; ++epoch) {
      const etude::detail::KeyedPermutation next(inputs.size(0), seed, epoch);
      for (std::int64_t place = 0; place < inputs.size(0); ++place) order.push_back(next[place]);
    }
    etude::save_safetensors(folder / (workload.name + ".data.safetensors"),
                            {{"inputs", inputs},
                             {"targets", targets},
                             {"order", torch::tensor(order)},
                             {"batch_size", torch::tensor(workload.batch_size)}});
    etude::StateDict weights;
    for (const auto& item : workload.network()->named_parameters())
      weights.emplace_back(item.key(), item.value());
    etude::save_safetensors(folder / (workload.name + ".weights.safetensors"), weights);
  }
}

std::map<std::string, torch::Tensor> read(const std::filesystem::path& file) {
  std::map<std::string, torch::Tensor> tensors;
  for (const auto& [name, tensor] : etude::load_safetensors(file).tensors)
    tensors.emplace(name, tensor.clone());
  return tensors;
}

template <class Policy>
void train(const Workload& workload, std::shared_ptr<Network> network, const Examples& examples,
           std::int64_t ddp_bucket_cap_mb) {
  etude::Trainer<Policy> trainer({.model = std::move(network),
                                  .args = {.output_dir = "parallel_bench_output",
                                           .per_device_train_batch_size = workload.batch_size,
                                           .max_steps = training_clock.steps_to_train(),
                                           .learning_rate = learning_rate,
                                           .weight_decay = weight_decay,
                                           .max_grad_norm = 0,
                                           .lr_scheduler_type = etude::SchedulerType::constant,
                                           .save_strategy = etude::SaveStrategy::no,
                                           .disable_tqdm = true,
                                           .use_cpu = true,
                                           .ddp_timeout = 60,
                                           .ddp_bucket_cap_mb = ddp_bucket_cap_mb},
                                  .loss = loss,
                                  .train_dataset = {examples.inputs, examples.targets}});
  trainer.train();
}

/// The mean loss over the first examples.
double mean_loss(Network& network, const Examples& examples) {
  const torch::NoGradGuard no_grad;
  network.eval();
  return loss(network.forward(examples.inputs.narrow(0, 0, 256)), examples.targets.narrow(0, 0, 256))
      .item<double>();
}

nlohmann::ordered_json answer(const std::filesystem::path& folder, const std::string& request) {
  std::istringstream words(request);
  std::string policy, name;
  std::int64_t steps = 0, warmup = 0, ddp_bucket_cap_mb = 0;
  words >> policy >> name >> steps >> warmup >> ddp_bucket_cap_mb;
  const auto workload = std::ranges::find(parallel_workloads(), name, &Workload::name);
  if (workload == parallel_workloads().end()) throw etude::Error("there is no workload '" + name + "'");

  auto data = read(folder / (name + ".data.safetensors"));
  const Examples examples{data.at("inputs"), data.at("targets")};
  const TensorMemory memory;
  const auto network = workload->network();
  {
    const torch::NoGradGuard no_grad;
    const auto weights = read(folder / (name + ".weights.safetensors"));
    for (auto& item : network->named_parameters()) item.value().copy_(weights.at(item.key()));
  }
  std::int64_t parameters = 0;
  for (const auto& parameter : network->parameters()) parameters += parameter.numel();

  training_clock.start(warmup, steps);
  if (policy == "data")
    train<Observed>(*workload, network, examples, ddp_bucket_cap_mb);
  else if (policy == "shards1")
    train<ObservedShards<1>>(*workload, network, examples, ddp_bucket_cap_mb);
  else if (policy == "shards2")
    train<ObservedShards<2>>(*workload, network, examples, ddp_bucket_cap_mb);
  else
    throw etude::Error("there is no policy '" + policy + "'");
  return {
      {"seconds", std::chrono::duration<double>(training_clock.end.wall - training_clock.begin.wall).count()},
      {"steps", steps},
      {"calls", training_clock.calls},
      {"loss", mean_loss(*network, examples)},
      {"join", traffic.seconds_to_join},
      {"bytes", traffic.bytes / static_cast<double>(steps)},
      {"messages", static_cast<double>(traffic.messages) / static_cast<double>(steps)},
      {"parameters", parameters},
      {"peak", memory.peak()},
      {"threads", at::get_num_threads()}};
}

/// Answers go to the original standard output; output of the trainings is discarded.
void serve(const std::filesystem::path& folder) {
  FILE* const answers = fdopen(dup(STDOUT_FILENO), "w");
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  fmt::print(answers, "ready\n");
  std::fflush(answers);
  for (std::string request; std::getline(std::cin, request);) {
    nlohmann::ordered_json reply;
    try {
      reply = answer(folder, request);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    fmt::print(answers, "{}\n", reply.dump());
    std::fflush(answers);
  }
}

/// The time of a sum of this many floats: the median of several rounds.
double microseconds(etude::Communicator& ranks, std::int64_t floats) {
  const auto tensor = torch::zeros({floats});
  std::vector<double> taken;
  const int messages = floats < 1000000 ? 20 : 1;
  for (int i = 0; i < 20; ++i) {
    ranks.barrier();
    taken.push_back(seconds([&] {
      for (int k = 0; k < messages; ++k) ranks.sum(tensor);
    }));
  }
  return median(taken) / messages * 1e6;
}

/// Rank 0 prints the times of sums over Gloo and through shared memory.
void measure_messages() {
  auto ranks = etude::join_with_gloo(etude::find_launch());
  const std::vector<std::int64_t> sizes{1, 1000, 4000, 125000, 5000000};
  std::vector<double> gloo;
  for (const auto floats : sizes) gloo.push_back(microseconds(*ranks, floats));
  ranks = etude::over_shared_memory(
      std::move(ranks), {.warn = [](const std::string& why) { fmt::print(stderr, "{}\n", why); }});
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto shared = microseconds(*ranks, sizes[i]);
    if (ranks->rank() == 0)
      fmt::print("{}\n",
                 nlohmann::ordered_json{{"floats", sizes[i]}, {"gloo", gloo[i]}, {"shared", shared}}.dump());
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "export") {
    bench::export_all(words[1]);
    fmt::print("{}\n", TORCH_VERSION);
  } else if (words.size() == 2 && words[0] == "serve") {
    bench::serve(words[1]);
  } else if (words == std::vector<std::string>{"messages"}) {
    bench::measure_messages();
  } else {
    fmt::print(stderr,
               "usage: parallel_bench export DIR, parallel_bench serve DIR, or parallel_bench messages\n");
    return 2;
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
