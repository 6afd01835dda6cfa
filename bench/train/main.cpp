/// Trains one contestant of the benchmark for run.py. `train_bench export DIR` writes the data, order and
/// initial weights of each workload for all contestants. `train_bench info` prints LibTorch's version and the
/// contestants.
///
/// `train_bench NAME DIR` begins a training for each line `workload warmup steps slices with_loss`. Before
/// each slice of `steps` steps and after the last, it prints the time since it was resumed as a line of JSON
/// and waits for an empty line. At the end it prints a line about the training, with the loss if `with_loss`
/// is 1.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "contestants.hpp"
#include "etude/formats/safetensors.hpp"
#ifdef BENCH_LOADS_EXPORTED
#include "etude/model/load_exported.hpp"
#endif

namespace bench {
namespace {

constexpr std::int64_t longest_training = 10'000;  // steps

etude::StateDict state_of(const Network& network) {
  etude::StateDict state;
  for (const auto& item : network.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : network.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

/// The order of Etude's own loader with its default seed.
torch::Tensor order_of(std::int64_t examples, std::int64_t batch_size) {
  std::vector<std::int64_t> order;
  const auto seed = static_cast<std::uint64_t>(etude::TrainingArguments().seed);
  for (std::int64_t epoch = 0; std::ssize(order) < longest_training * batch_size; ++epoch) {
    const etude::detail::KeyedPermutation next(examples, seed, epoch);
    for (std::int64_t place = 0; place < examples; ++place) order.push_back(next[place]);
  }
  return torch::tensor(order);
}

void export_all(const std::filesystem::path& folder) {
  for (const auto& workload : workloads()) {
    torch::manual_seed(1);
    const auto [inputs, targets] = workload.examples();
    etude::save_safetensors(folder / (workload.name + ".data.safetensors"),
                            {{"inputs", inputs},
                             {"targets", targets},
                             {"order", order_of(inputs.size(0), workload.batch_size)},
                             {"batch_size", torch::tensor(workload.batch_size)}});
    etude::save_safetensors(folder / (workload.name + ".weights.safetensors"), state_of(*workload.network()));
  }
}

#ifdef BENCH_LOADS_EXPORTED
/// A network that `peers.py export DIR` exported.
struct ExportedNetwork : Network {
  explicit ExportedNetwork(const std::filesystem::path& file)
      : exported(register_module("exported", etude::load_exported(file))) {}
  torch::Tensor logits(torch::Tensor inputs) override { return exported->forward(etude::Tensors(inputs)); }
  etude::ExportedModule exported;
};
#endif

std::shared_ptr<Network> network_of(const Workload& workload, const std::string& contestant,
                                    [[maybe_unused]] const std::filesystem::path& folder) {
#ifdef BENCH_LOADS_EXPORTED
  if (contestant == "etude_exported")
    return std::make_shared<ExportedNetwork>(folder / (workload.name + ".pt2"));
#endif
  return workload.network();
}

std::map<std::string, torch::Tensor> read(const std::filesystem::path& file) {
  std::map<std::string, torch::Tensor> tensors;
  for (const auto& [name, tensor] : etude::load_safetensors(file).tensors)
    tensors.emplace(name, tensor.clone());
  return tensors;
}

double evaluate(const Task& task) {
  const torch::NoGradGuard no_grad;
  task.network->eval();
  double total = 0;
  const auto inputs = task.examples.inputs.split(256), targets = task.examples.targets.split(256);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    total += loss(task.network->forward(inputs[i]), targets[i]).item<double>() *
             static_cast<double>(inputs[i].size(0));
  return total / static_cast<double>(task.examples.inputs.size(0));
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return usage.ru_maxrss * 1024;
#endif
}

double seconds(const Moment& from, const Moment& to) {
  return std::chrono::duration<double>(to.wall - from.wall).count();
}

void print(FILE* file, const nlohmann::ordered_json& line) {
  fmt::print(file, "{}\n", line.dump());
  std::fflush(file);
}

void pause(FILE* answers) {
  static Moment resumed;
  const auto now = Moment::now();
  print(answers, {{"seconds", seconds(resumed, now)},
                  {"cpu_seconds", static_cast<double>(now.cpu - resumed.cpu) / CLOCKS_PER_SEC}});
  std::string line;
  if (!std::getline(std::cin, line)) throw etude::Error("standard input has ended");
  resumed = Moment::now();
}

nlohmann::ordered_json train(const std::string& contestant, const std::filesystem::path& folder,
                             const std::string& request, FILE* answers) {
  std::istringstream words(request);
  std::string name;
  std::int64_t warmup = 0, steps = 0, slices = 0;
  bool with_loss = false;
  words >> name >> warmup >> steps >> slices >> with_loss;
  const auto workload = std::ranges::find(workloads(), name, &Workload::name);
  if (workload == workloads().end()) throw etude::Error("there is no workload '" + name + "'");

  auto data = read(folder / (name + ".data.safetensors"));
  const auto to_train = warmup + steps * slices + 1;
  if (to_train > longest_training) throw etude::Error(fmt::format("{} are too many steps", to_train));
  const Task task{network_of(*workload, contestant, folder),
                  {data.at("inputs"), data.at("targets")},
                  data.at("order").narrow(0, 0, to_train * workload->batch_size),
                  workload->batch_size,
                  to_train};
  const torch::NoGradGuard no_grad;
  const auto weights = read(folder / (name + ".weights.safetensors"));
  for (auto& [key, tensor] : state_of(*task.network))
    tensor.copy_(weights.at(key.starts_with("exported.") ? key.substr(9) : key));

  {
    const torch::AutoGradMode with_grad(true);
    training_clock.start(warmup, steps * slices);
    training_clock.slice = steps;
    training_clock.pause = [answers] { pause(answers); };
    contestants().at(contestant)(task);
  }
  nlohmann::ordered_json reply{{"startup", seconds(training_clock.started, training_clock.first_call)},
                               {"calls", training_clock.calls},
                               {"threads", at::get_num_threads()},
                               {"peak_memory", peak_memory()}};
  if (with_loss) reply["loss"] = evaluate(task);
  return reply;
}

/// Answers go to the original standard output; output of the contestants is discarded.
void serve(const std::string& contestant, const std::filesystem::path& folder) {
  FILE* const answers = fdopen(dup(STDOUT_FILENO), "w");
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  for (std::string request; std::getline(std::cin, request);) {
    nlohmann::ordered_json reply;
    try {
      reply = train(contestant, folder, request, answers);
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    print(answers, reply);
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"info"}) {
    nlohmann::ordered_json info{{"libtorch", TORCH_VERSION}, {"contestants", nlohmann::json::array()}};
    for (const auto& [name, train] : bench::contestants()) info["contestants"].push_back(name);
    fmt::print("{}\n", info.dump());
  } else if (words.size() == 2 && words[0] == "export") {
    bench::export_all(words[1]);
  } else if (words.size() == 2 && bench::contestants().contains(words[0])) {
    bench::serve(words[0], words[1]);
  } else {
    fmt::print(stderr, "usage: train_bench export DIR, train_bench NAME DIR, or train_bench info\n");
    return 2;
  }
}
