/// Measures the cost of an event for 0 to 64 callbacks that each add to a member, for several ways to call
/// them, compared with handwritten calls in the same run. Also measures the training loop's time per event,
/// next to a whole step of a small network. `dispatch_bench [--json FILE] [ROUNDS]` prints Markdown tables
/// and writes a line of JSON for each measurement to FILE.

#include <fmt/format.h>

#include <algorithm>
#include <boost/preprocessor/repetition/repeat.hpp>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <etude/etude.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "measure.hpp"

namespace {

struct Step {
  std::int64_t value;
};

template <std::size_t I>
struct Add {
  void on(const Step& e) { total += e.value; }
  std::int64_t total = 0;
};

/// Makes the compiler assume that `thing` is read and possibly changed here.
template <class T>
void look_at(T& thing) {
  asm volatile("" : : "r"(&thing) : "memory");
}

template <std::size_t N>
struct Handler {
  static constexpr std::string_view name = "tuple";
  void call_event(const Step& e) { callbacks.call_event(e); }
  template <std::size_t... I>
  static etude::CallbackHandler<Add<I>...> make(std::index_sequence<I...>) {
    return etude::CallbackHandler<Add<I>...>(Add<I>{}...);
  }
  decltype(make(std::make_index_sequence<N>())) callbacks = make(std::make_index_sequence<N>());
};
template <>
struct Handler<0> {
  static constexpr std::string_view name = "tuple";
  void call_event(const Step& e) { callbacks.call_event(e); }
  etude::CallbackHandler<> callbacks;
};

template <std::size_t N>
struct ByHand;
#define MEMBER(z, i, context) Add<i> add##i;
#define CALL(z, i, context) add##i.on(e);
#define BY_HAND(count)                                                   \
  template <>                                                            \
  struct ByHand<count> {                                                 \
    static constexpr std::string_view name = "by hand";                  \
    void call_event([[maybe_unused]] const Step& e){                     \
        BOOST_PP_REPEAT(count, CALL, )} BOOST_PP_REPEAT(count, MEMBER, ) \
  };
BY_HAND(0)
BY_HAND(1)
BY_HAND(4)
BY_HAND(16)
BY_HAND(64)
#undef BY_HAND
#undef CALL
#undef MEMBER

struct VirtualCallback {
  virtual ~VirtualCallback() = default;
  virtual void on(const Step& e) = 0;
};
template <std::size_t I>
struct VirtualAdd final : VirtualCallback {
  void on(const Step& e) override { add.on(e); }
  Add<I> add;
};

/// Calls callbacks as Hugging Face's handler does.
template <std::size_t N>
struct VirtualList {
  static constexpr std::string_view name = "virtual list";
  VirtualList() {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (callbacks.push_back(std::make_unique<VirtualAdd<I>>()), ...);
    }
    (std::make_index_sequence<N>());
  }
  void call_event(const Step& e) {
    for (const auto& callback : callbacks) callback->on(e);
  }
  std::vector<std::unique_ptr<VirtualCallback>> callbacks;
};

template <std::size_t N>
struct FunctionList {
  static constexpr std::string_view name = "std::function list";
  FunctionList() {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (callbacks.emplace_back([add = Add<I>()](const Step& e) mutable { add.on(e); }), ...);
    }
    (std::make_index_sequence<N>());
  }
  void call_event(const Step& e) {
    for (const auto& callback : callbacks) callback(e);
  }
  std::vector<std::function<void(const Step&)>> callbacks;
};

template <std::size_t N>
struct AtRunTime {
  static constexpr std::string_view name = "RuntimeCallbacks";
  AtRunTime() {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (callbacks.add(etude::events<Step>{}, Add<I>{}), ...);
    }
    (std::make_index_sequence<N>());
  }
  void call_event(const Step& e) { callbacks.on(e); }
  etude::RuntimeCallbacks callbacks;
};

struct Contestant {
  std::string_view name;
  std::function<void(std::int64_t events)> raise;
  std::vector<double> nanoseconds = {};  ///< per event, in each round
};

template <class Callbacks>
Contestant contestant() {
  return {Callbacks::name, [callbacks = std::make_shared<Callbacks>()](std::int64_t events) {
            for (std::int64_t i = 0; i < events; ++i) {
              callbacks->call_event(Step{i});
              look_at(*callbacks);
            }
          }};
}

double seconds(const Contestant& contestant, std::int64_t events) {
  return bench::seconds([&] { contestant.raise(events); });
}

using bench::median;

/// One row of the table; the first contestant is the reference.
template <std::size_t N>
void measure(int rounds, std::ostream& json) {
  std::vector<Contestant> contestants{contestant<ByHand<N>>(), contestant<Handler<N>>(),
                                      contestant<VirtualList<N>>(), contestant<FunctionList<N>>(),
                                      contestant<AtRunTime<N>>()};
  std::int64_t events = 1000;
  while (seconds(contestants[0], events) < 2e-3) events *= 2;
  for (int round = 0; round < rounds; ++round)
    for (auto& each : contestants)
      each.nanoseconds.push_back(seconds(each, events) * 1e9 / static_cast<double>(events));

  fmt::print("| {} | {:.2f} ns |", N, median(contestants[0].nanoseconds));
  for (const auto& each : contestants) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < each.nanoseconds.size(); ++i)
      ratios.push_back(each.nanoseconds[i] / contestants[0].nanoseconds[i]);
    if (&each != &contestants[0]) fmt::print(" {:.2f} |", median(ratios));
    json << nlohmann::ordered_json{{"bench", "dispatch"},
                                   {"callbacks", N},
                                   {"contestant", each.name},
                                   {"nanoseconds", median(each.nanoseconds)},
                                   {"ratio", median(ratios)},
                                   {"ratio_least", std::ranges::min(ratios)},
                                   {"ratio_most", std::ranges::max(ratios)}}
         << '\n';
  }
  fmt::print("\n");
}

template <std::size_t>
struct CountSteps {
  void on(const etude::StepEnd&) { ++steps; }
  std::int64_t steps = 0;
};

/// Calls the callbacks through an event table.
template <std::size_t N>
struct Owner {
  template <std::size_t... I>
  static etude::CallbackHandler<CountSteps<I>...> make(std::index_sequence<I...>) {
    return etude::CallbackHandler<CountSteps<I>...>(CountSteps<I>{}...);
  }
  using Callbacks = decltype(make(std::make_index_sequence<N>()));
  Callbacks callbacks = make(std::make_index_sequence<N>());

  template <class Event>
  static consteval bool hears() {
    return Callbacks::template handles<Event>;
  }
  template <class Event>
  static consteval bool is_written() {
    return Callbacks::template writes<Event>;
  }
  template <class Event>
  void deliver(Event& event) {
    callbacks.call_event(event);
  }
  template <class Event>
  void deliver_to_all(Event& event, etude::detail::OnError on_error, etude::detail::TracedCallbacks& traced) {
    callbacks.call_event_to_all(event, on_error, traced);
  }
};

/// The nanoseconds that the loop takes to raise `StepEnd` for N callbacks.
template <std::size_t N>
double raise_by_loop(int rounds) {
  static constexpr etude::TrainerTable table{
      etude::detail::EventTables::make<Owner<N>>(etude::Vocabulary{}), {}, "Owner", nullptr, nullptr};
  Owner<N> owner;
  etude::EventSource loop;
  loop.connect(etude::TrainerRef(owner), table);
  const auto raise = [&](std::int64_t events) {
    return bench::seconds([&] {
      for (std::int64_t i = 0; i < events; ++i) {
        loop.raise<etude::StepEnd>();
        look_at(owner);
      }
    });
  };
  std::int64_t events = 1000;
  while (raise(events) < 2e-3) events *= 2;
  std::vector<double> nanoseconds;
  for (int round = 0; round < rounds; ++round)
    nanoseconds.push_back(raise(events) * 1e9 / static_cast<double>(events));
  return median(nanoseconds);
}

/// The nanoseconds of a training step of a 4-16-2 perceptron with batches of 32 and no callbacks.
double step_of_small_network() {
  constexpr std::int64_t steps = 3000;
  torch::nn::Sequential network(torch::nn::Linear(4, 16), torch::nn::ReLU(), torch::nn::Linear(16, 2));
  const auto inputs = torch::randn({32 * 100, 4});
  etude::TrainingArguments args;
  args.output_dir = (std::filesystem::temp_directory_path() / "etude_dispatch_bench").string();
  args.per_device_train_batch_size = 32;
  args.max_steps = steps;
  args.log_level = etude::LogLevel::error;
  etude::Trainer<etude::NoDefaultCallbacks> trainer(
      {.model = network,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = etude::Dataset{inputs, inputs.matmul(torch::randn({4, 2})).argmax(1)}});
  trainer.train();
  return bench::seconds([&] { trainer.train(); }) * 1e9 / steps;
}

template <std::size_t... N>
void measure_loop(int rounds, std::ostream& json) {
  torch::set_num_threads(1);
  const double step = step_of_small_network();
  fmt::print(
      "\nAn event of the training loop, beside a step of a small network ({:.1f} us):\n\n| callbacks | ns | "
      "share of the step |\n|---|---|---|\n",
      step / 1e3);
  const auto line = [&](std::size_t callbacks, double nanoseconds) {
    fmt::print("| {} | {:.1f} | {:.4f} % |\n", callbacks, nanoseconds, 100 * nanoseconds / step);
    json << nlohmann::ordered_json{{"bench", "dispatch"},
                                   {"callbacks", callbacks},
                                   {"contestant", "loop"},
                                   {"nanoseconds", nanoseconds},
                                   {"share", nanoseconds / step}}
         << '\n';
  };
  (line(N, raise_by_loop<N>(rounds)), ...);
}

}  // namespace

int main(int argc, char** argv) {
  std::ofstream json;
  int rounds = 41;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string_view("--json") && i + 1 < argc) {
      json.open(argv[++i]);
      if (!json) throw std::runtime_error(fmt::format("{} can't be written", argv[i]));
    } else {
      rounds = std::max(1, std::stoi(argv[i]));
    }
  }
  fmt::print("| callbacks | by hand | tuple | virtual list | std::function list | RuntimeCallbacks |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  measure<0>(rounds, json);
  measure<1>(rounds, json);
  measure<4>(rounds, json);
  measure<16>(rounds, json);
  measure<64>(rounds, json);
  measure_loop<0, 1, 4, 16, 64>(rounds, json);
}
