#pragma once

#include <ATen/core/Generator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/libtorch/random.hpp"

namespace etude {
namespace detail {

inline at::Tensor bytes_of(std::string_view text) {
  auto tensor = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kByte);
  if (!text.empty()) std::memcpy(tensor.data_ptr(), text.data(), text.size());
  return tensor;
}

inline std::string text_of(const at::Tensor& bytes) {
  if (bytes.scalar_type() != torch::kByte || bytes.dim() != 1)
    throw CheckpointError("the state of a generator must be a row of bytes");
  const auto packed = bytes.contiguous();
  return {static_cast<const char*>(packed.data_ptr()), static_cast<std::size_t>(packed.numel())};
}

}  // namespace detail

/// A generator of the user's own whose state is stored with checkpoints: a LibTorch generator, or a pointer,
/// which must stay valid, to an engine of <random> or anything else that has `std::string state()` and
/// `load_state(const std::string&)`.
class StatefulGenerator {
 public:
  StatefulGenerator(at::Generator generator)
      : save_([generator] { return detail::text_of(generator_state(generator)); }),
        load_([generator](const std::string& state) {
          set_generator_state(generator, detail::bytes_of(state));
        }) {}

  template <class Engine>
  StatefulGenerator(Engine* engine) {
    if (!engine) throw ArgumentError("generators: one of them is a null pointer");
    if constexpr (requires {
                    std::string(engine->state());
                    engine->load_state(std::string());
                  }) {
      save_ = [engine] { return engine->state(); };
      load_ = [engine](const std::string& state) { engine->load_state(state); };
    } else {
      static_assert(
          requires(std::stringstream stream) {
            stream << *engine;
            stream >> *engine;
          },
          "etude: a generator is an engine of <random> (it can be written to and read from a "
          "stream), or has state() and load_state(const std::string&)");
      save_ = [engine] {
        std::ostringstream text;
        text << *engine;
        return text.str();
      };
      load_ = [engine](const std::string& state) {
        std::istringstream text(state);
        Engine loaded = *engine;
        if (!(text >> loaded)) throw CheckpointError("it is no state of this engine");
        *engine = loaded;
      };
    }
  }

  std::string state() const { return save_(); }
  void load_state(const std::string& state) const { load_(state); }

 private:
  std::function<std::string()> save_;
  std::function<void(const std::string&)> load_;
};

/// Generators by name.
using StatefulGenerators = std::map<std::string, StatefulGenerator>;

/// The states of LibTorch's default generators ("cpu", "cuda:0") and of the user's ("generators.NAME"), rows
/// of bytes.
using RandomState = std::map<std::string, at::Tensor>;

inline RandomState random_state(const StatefulGenerators& own) {
  RandomState state;
  for (const auto& [name, generator] : default_generators()) state[name] = generator_state(generator);
  for (const auto& [name, generator] : own) state["generators." + name] = detail::bytes_of(generator.state());
  return state;
}

/// Gives the generators their states back. Returns what didn't fit, in words.
inline std::vector<std::string> load_random_state(const RandomState& state, const StatefulGenerators& own) {
  std::vector<std::string> problems;
  std::size_t used = 0;
  const auto load = [&](const std::string& name, const auto& set) {
    const auto found = state.find(name);
    if (found == state.end())
      return problems.push_back(
          fmt::format("there is no state of the generator {}: it stays as it is", name));
    ++used;
    try {
      set(found->second);
    } catch (const std::exception& error) {
      problems.push_back(fmt::format("the state of the generator {} can't be used: {}", name,
                                     std::string_view(error.what()).substr(0, 200)));
    }
  };
  for (const auto& [name, generator] : default_generators())
    load(name, [&generator = generator](const at::Tensor& bytes) {
      set_generator_state(generator, bytes.clone());
    });
  for (const auto& [name, generator] : own)
    load("generators." + name,
         [&generator = generator](const at::Tensor& bytes) { generator.load_state(detail::text_of(bytes)); });
  if (used < state.size())
    problems.push_back(
        fmt::format("there are states of {} generators that aren't here", state.size() - used));
  return problems;
}

}  // namespace etude
