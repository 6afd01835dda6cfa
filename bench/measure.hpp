#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

template <class F>
double seconds(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// One implementation of the work that a table row measures.
struct Contestant {
  std::string name;
  std::function<double()> run;  ///< Does the work once and returns its seconds.
};

/// Runs rounds in which every contestant of a row does its work once, so that disturbances of the machine
/// affect all of them. Reports each contestant's median speedup over the first (with minimum and maximum) as
/// a line of Markdown and, with `--json FILE`, of JSON.
class Rounds {
 public:
  /// `[--json FILE] [ROUNDS]`
  Rounds(int argc, char** argv, int rounds) : rounds_(rounds) {
    for (int i = 1; i < argc; ++i) {
      if (argv[i] == std::string_view("--json") && i + 1 < argc) {
        json_.open(argv[++i]);
        if (!json_) throw std::runtime_error(fmt::format("can't write {}", argv[i]));
      } else {
        rounds_ = std::max(1, std::stoi(argv[i]));
      }
    }
  }

  /// `unit` and `amount` describe the work of one run: 100 "batches".
  void row(std::string_view name, std::string_view unit, double amount, std::vector<Contestant> contestants) {
    std::vector<std::vector<double>> taken(contestants.size());
    for (auto& each : contestants) each.run();
    for (int round = 0; round < rounds_; ++round)
      for (std::size_t i = 0; i < contestants.size(); ++i) taken[i].push_back(contestants[i].run());
    fmt::print("- {}:", name);
    for (std::size_t i = 0; i < contestants.size(); ++i) {
      std::vector<double> speedups;
      for (int round = 0; round < rounds_; ++round) {
        const auto r = static_cast<std::size_t>(round);
        speedups.push_back(taken[0][r] / taken[i][r]);
      }
      if (i == 0)
        fmt::print(" {} {:.0f} {}/s", contestants[i].name, amount / median(taken[i]), unit);
      else
        fmt::print("; {} {:.2f} ({:.2f}-{:.2f})", contestants[i].name, median(speedups),
                   std::ranges::min(speedups), std::ranges::max(speedups));
      json_ << nlohmann::ordered_json{{"row", name},
                                      {"contestant", contestants[i].name},
                                      {"unit", unit},
                                      {"per_second", amount / median(taken[i])},
                                      {"speed", median(speedups)},
                                      {"speed_least", std::ranges::min(speedups)},
                                      {"speed_most", std::ranges::max(speedups)}}
            << '\n';
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  int rounds_;
  std::ofstream json_;
};

}  // namespace bench
