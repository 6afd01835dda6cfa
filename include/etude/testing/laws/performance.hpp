#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "etude/testing/laws/compare.hpp"
#include "etude/testing/laws/moment.hpp"
#include "etude/testing/laws/permissions.hpp"
#include "etude/testing/laws/stage.hpp"
#include "etude/testing/laws/subject.hpp"

namespace etude::inline v0::laws::detail {

/// A temporary folder, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// How a trainer is set up. By default it has one tested callback and writes no checkpoints.
struct Setting {
  int subjects = 1;
  std::filesystem::path folder = {};
  bool saves = false;
  std::function<void()> inside = {};
  std::filesystem::path resume = {};
  std::filesystem::path keep = {};
};

/// A trainer on the built-in problem, with the tested callbacks.
class Performance {
 public:
  Performance(const Trial& trial, const Options& options, const Setting& setting);

  Run train(const Disturbance& disturbance = {});

  /// Evaluates and predicts outside a training; returns the errors as text.
  std::vector<std::string> evaluate();

 private:
  void collect_errors(std::vector<std::string>& into);
  /// Compares the weights with the first process's.
  Difference difference_among_processes();

  Setting setting_;
  std::shared_ptr<Stage> stage_ = std::make_shared<Stage>();
  LawTrainer trainer_;
  std::vector<std::shared_ptr<AnySubject>> subjects_;
};

}  // namespace etude::inline v0::laws::detail
