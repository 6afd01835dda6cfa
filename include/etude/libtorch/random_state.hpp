#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

at::Tensor bytes_of(std::string_view text);
std::string text_of(const at::Tensor& bytes);

}  // namespace detail

/// A user's generator whose state is saved with checkpoints: a LibTorch generator, or a pointer to a <random>
/// engine or anything else that has `std::string state()` and `load_state(const std::string&)`. A pointer
/// must stay valid.
class StatefulGenerator {
 public:
  StatefulGenerator(const at::Generator& generator);

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
        text.imbue(std::locale::classic());  // the global locale may group digits
        text << *engine;
        return text.str();
      };
      load_ = [engine](const std::string& state) {
        std::istringstream text(state);
        text.imbue(std::locale::classic());
        Engine loaded = *engine;
        if (!(text >> loaded)) throw CheckpointError("it isn't a state of this engine");
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

/// The states of LibTorch's default generators ("cpu", "cuda:0") and of the user's ("generators.NAME"), as
/// 1-dim byte tensors.
using RandomState = std::map<std::string, at::Tensor>;

RandomState random_state(const StatefulGenerators& own);

/// Restores the states. Returns a description of each problem.
std::vector<std::string> load_random_state(const RandomState& state, const StatefulGenerators& own);

}  // namespace etude::inline v0
