#include "etude/libtorch/random_state.hpp"

#include <ATen/core/Generator.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/generators.hpp"

namespace etude::inline v0 {
namespace detail {

at::Tensor bytes_of(std::string_view text) {
  auto tensor = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kByte);
  if (!text.empty()) std::memcpy(tensor.data_ptr(), text.data(), text.size());
  return tensor;
}

std::string text_of(const at::Tensor& bytes) {
  if (bytes.scalar_type() != torch::kByte || bytes.dim() != 1)
    throw CheckpointError("the state of a generator must be a 1-dim byte tensor");
  const auto packed = bytes.contiguous();
  return {static_cast<const char*>(packed.data_ptr()), static_cast<std::size_t>(packed.numel())};
}

}  // namespace detail

StatefulGenerator::StatefulGenerator(const at::Generator& generator)
    : save_([generator] { return detail::text_of(generator_state(generator)); }),
      load_([generator](const std::string& state) {
        set_generator_state(generator, detail::bytes_of(state));
      }) {}

RandomState random_state(const StatefulGenerators& own) {
  RandomState state;
  for (const auto& [name, generator] : default_generators()) state[name] = generator_state(generator);
  for (const auto& [name, generator] : own) state["generators." + name] = detail::bytes_of(generator.state());
  return state;
}

std::vector<std::string> load_random_state(const RandomState& state, const StatefulGenerators& own) {
  std::vector<std::string> problems;
  std::size_t used = 0;
  const auto load = [&](const std::string& name, const auto& set) {
    const auto found = state.find(name);
    if (found == state.end())
      return problems.push_back(
          fmt::format("the state of generator {} is missing: it stays unchanged", name));
    ++used;
    try {
      set(found->second);
    } catch (const std::exception& error) {
      problems.push_back(fmt::format("the state of generator {} can't be used: {}", name,
                                     std::string_view(error.what()).substr(0, 200)));
    }
  };
  for (const auto& [name, generator] : default_generators())
    load(name, [&each = generator](const at::Tensor& bytes) { set_generator_state(each, bytes.clone()); });
  for (const auto& [name, generator] : own)
    load("generators." + name,
         [&each = generator](const at::Tensor& bytes) { each.load_state(detail::text_of(bytes)); });
  if (used < state.size())
    problems.push_back(
        fmt::format("it has the states of {} generators that don't exist here", state.size() - used));
  return problems;
}

}  // namespace etude::inline v0
