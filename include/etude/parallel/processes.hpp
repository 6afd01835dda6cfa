#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>

#include "etude/callback.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// A policy in a trainer's list that says how the processes of a training connect.
template <class Policy>
concept JoinsProcesses = requires(const TrainingArguments& args) {
                           typename Policy::etude_policy;
                           { Policy::join(args) } -> std::convertible_to<std::shared_ptr<Communicator>>;
                         };

/// The default: one process. Throws ArgumentError if a launcher has started several.
struct SingleProcess {
  using etude_policy = void;
  static std::shared_ptr<Communicator> join(const TrainingArguments& args);
};

namespace mistake {
template <class First, class Second>
struct only_one_policy_may_say_how_processes_join;
}  // namespace mistake

namespace detail {

/// The device of a process: the GPU with the number of its local rank, or the CPU. Throws ArgumentError if
/// the machine has fewer GPUs than processes.
torch::Device device_for(const Launch& launch, bool use_cpu);

/// Advice on using all GPUs of a machine, for a program that uses one.
std::string advice_for_gpus(std::int64_t gpus);

/// The policy in a list that says how processes connect.
template <class... List>
struct processes_of {
  using type = SingleProcess;
};
template <class First, class... Rest>
struct processes_of<First, Rest...> : processes_of<Rest...> {};
template <JoinsProcesses First, class... Rest>
struct processes_of<First, Rest...> {
  using type = First;
  using other = typename processes_of<Rest...>::type;
  static_assert(expect<std::same_as<other, SingleProcess>,
                       mistake::only_one_policy_may_say_how_processes_join<First, other>>());
};

}  // namespace detail

}  // namespace etude::inline v0
