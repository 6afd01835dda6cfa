/// Measures sparse gradients: Etude and loops with LibTorch's optimizers train a table of 2,000,000 x 16
/// (200,000 with --quick) and a small network. The loops' SparseAdam is handwritten, since LibTorch has none
/// in C++. Each run is a separate process, and reports its CPU time per step after the first ten, and its
/// peak memory. `sparse_bench [--quick] [--json FILE] [ROUNDS]`.

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <etude/etude.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace {

constexpr std::int64_t width = 16, batch_size = 256, steps = 210, untimed = 10;
constexpr double rate = 0.01;
std::int64_t rows = 2'000'000;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& row) { return tower->forward(table(row)).squeeze(1); }

  torch::nn::Embedding table{
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(rows, width).sparse(true)))};
  torch::nn::Sequential tower{register_module(
      "tower",
      torch::nn::Sequential(torch::nn::Linear(width, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1)))};
};
TORCH_MODULE(Net);

Net seeded() {
  torch::manual_seed(1);
  return Net();
}

std::pair<torch::Tensor, torch::Tensor> data() {
  torch::manual_seed(2);
  // Some rows are frequent, most are rare.
  const auto row = (torch::rand({steps * batch_size}).pow(3) * static_cast<double>(rows)).to(torch::kLong);
  return {row, torch::randn({steps * batch_size})};
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// The CPU seconds of the timed steps, and the last loss.
struct Outcome {
  double seconds = 0, loss = 0, megabytes = 0;
};

struct Watch {
  double begin = 0, end = 0;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == untimed) begin = cpu_seconds();
    if (e.state.global_step == steps) end = cpu_seconds();
  }
};

Outcome by_etude(bool sparse_adam) {
  const auto [row, target] = data();
  auto net = seeded();
  etude::TrainerOptions options{.model = net,
                                .args = {.output_dir = "/nonexistent",
                                         .per_device_train_batch_size = batch_size,
                                         .num_train_epochs = 1,
                                         .optim = etude::OptimizerNames::adagrad,
                                         .learning_rate = rate,
                                         .max_grad_norm = 0,
                                         .lr_scheduler_type = etude::SchedulerType::constant,
                                         .save_strategy = etude::SaveStrategy::no,
                                         .logging_strategy = etude::IntervalStrategy::no,
                                         .log_level = etude::LogLevel::error,
                                         .disable_tqdm = true,
                                         .train_sampling_strategy = etude::SamplingStrategy::sequential},
                                .loss = torch::nn::MSELoss(),
                                .train_dataset = {row, target}};
  if (sparse_adam)
    options.optimizers = {{"table", {.optim = etude::OptimizerNames::sparse_adam}},
                          {"tower", {.optim = etude::OptimizerNames::adam}}};
  etude::Trainer<etude::NoDefaultCallbacks, etude::DefaultFlowCallback, Watch> trainer(options, Watch());
  trainer.train();
  const auto& watch = trainer.callback<Watch>();
  const torch::NoGradGuard no_grad;
  return {watch.end - watch.begin, torch::mse_loss(net->forward(row), target).item<double>()};
}

/// torch.optim.SparseAdam.
class SparseAdam {
 public:
  explicit SparseAdam(torch::Tensor weight)
      : weight_(std::move(weight)), mean_(torch::zeros_like(weight_)), square_(torch::zeros_like(weight_)) {}

  void step() {
    const torch::NoGradGuard no_grad;
    ++steps_;
    const auto gradient = weight_.grad().coalesce();
    const auto make_sparse = [&](const torch::Tensor& values) {
      return torch::sparse_coo_tensor(gradient.indices(), values, weight_.sizes());
    };
    const auto values = gradient.values();
    const auto old_mean = mean_.sparse_mask(gradient)._values();
    const auto mean = values.sub(old_mean).mul_(1 - 0.9);
    mean_.add_(make_sparse(mean));
    const auto old_square = square_.sparse_mask(gradient)._values();
    const auto square = values.pow(2).sub_(old_square).mul_(1 - 0.999);
    square_.add_(make_sparse(square));
    const auto numerator = mean.add_(old_mean);
    const auto denominator = square.add_(old_square).sqrt_().add_(1e-8);
    const double size = rate * std::sqrt(1 - std::pow(0.999, steps_)) / (1 - std::pow(0.9, steps_));
    weight_.add_(make_sparse(numerator.div_(denominator).mul_(-size)));
  }

 private:
  torch::Tensor weight_, mean_, square_;
  double steps_ = 0;
};

template <class Step>
Outcome by_loop(Net& net, Step step) {
  const auto [row, target] = data();
  double begin = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    if (i == untimed) begin = cpu_seconds();
    net->zero_grad();
    torch::mse_loss(net->forward(row.narrow(0, i * batch_size, batch_size)),
                    target.narrow(0, i * batch_size, batch_size))
        .backward();
    step();
  }
  const double end = cpu_seconds();
  const torch::NoGradGuard no_grad;
  return {end - begin, torch::mse_loss(net->forward(row), target).item<double>()};
}

Outcome by_hand(bool sparse_adam) {
  auto net = seeded();
  if (!sparse_adam) {
    torch::optim::Adagrad adagrad(net->parameters(), torch::optim::AdagradOptions(rate));
    return by_loop(net, [&] { adagrad.step(); });
  }
  SparseAdam table(net->table->weight);
  torch::optim::Adam tower(net->tower->parameters(), torch::optim::AdamOptions(rate));
  return by_loop(net, [&] {
    table.step();
    tower.step();
  });
}

/// Runs the work in another process.
Outcome measured(bool by_etude_, bool sparse_adam) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("there is no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);
    Outcome outcome = by_etude_ ? by_etude(sparse_adam) : by_hand(sparse_adam);
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    outcome.megabytes = static_cast<double>(used.ru_maxrss) * 1024 / 1e6;
    const bool sent = ::write(ends[1], &outcome, sizeof outcome) == sizeof outcome;
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  Outcome outcome;
  const bool arrived = ::read(ends[0], &outcome, sizeof outcome) == sizeof outcome;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  if (!arrived) throw std::runtime_error("a run has failed");
  return outcome;
}

}  // namespace

int main(int argc, char** argv) {
  std::ofstream json;
  int rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick")
      rows = 200'000;
    else if (argument == "--json" && i + 1 < argc)
      json.open(argv[++i]);
    else
      rounds = std::max(1, std::stoi(argv[i]));
  }
  fmt::print("A table of {} x {}, batches of {}, medians of {} rounds.\n\n", rows, width, batch_size, rounds);
  fmt::print(
      "| | CPU time of a step, Etude | the loop | ratio | peak memory, Etude | the loop | ratio |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const bool sparse_adam : {false, true}) {
    std::vector<double> ours, theirs, times, our_memory, their_memory, memories;
    for (int round = 0; round < rounds; ++round) {
      const auto etude = measured(true, sparse_adam), loop = measured(false, sparse_adam);
      if (std::abs(etude.loss - loop.loss) > 1e-4 * loop.loss)
        throw std::runtime_error(
            fmt::format("Etude's last loss is {}, the loop's {}", etude.loss, loop.loss));
      constexpr double timed = steps - untimed;
      ours.push_back(etude.seconds / timed * 1e3);
      theirs.push_back(loop.seconds / timed * 1e3);
      times.push_back(etude.seconds / loop.seconds);
      our_memory.push_back(etude.megabytes);
      their_memory.push_back(loop.megabytes);
      memories.push_back(etude.megabytes / loop.megabytes);
    }
    const auto* const name = sparse_adam ? "SparseAdam for the table, Adam for the rest" : "Adagrad";
    fmt::print("| {} | {:.2f} ms | {:.2f} ms | {:.2f} | {:.0f} MB | {:.0f} MB | {:.2f} |\n", name,
               bench::median(ours), bench::median(theirs), bench::median(times), bench::median(our_memory),
               bench::median(their_memory), bench::median(memories));
    json << nlohmann::ordered_json{{"row", name},
                                   {"milliseconds", bench::median(ours)},
                                   {"milliseconds_of_loop", bench::median(theirs)},
                                   {"time", bench::median(times)},
                                   {"megabytes", bench::median(our_memory)},
                                   {"megabytes_of_loop", bench::median(their_memory)},
                                   {"memory", bench::median(memories)}}
         << '\n';
  }
}
