#include "etude/loop/ranks.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

void Ranks::agree(TrainerControl& control) {
  if (!several()) return;
  const auto counts = torch::zeros({6}, torch::kInt);
  auto* count = counts.data_ptr<int>();
  const std::array<bool*, 5> flags{&control.should_training_stop, &control.should_epoch_stop,
                                   &control.should_save, &control.should_evaluate, &control.should_log};
  for (std::size_t i = 0; i < flags.size(); ++i) count[i] = *flags[i] ? 1 : 0;
  // Signals are encoded so that their sum over processes shows if any got SIGTERM, which prevails over
  // SIGINT.
  count[5] = SignalGuard::came() != 0 ? 1 << (SignalGuard::came() == SIGINT ? 0 : 16) : 0;
  communicator_->sum(counts);
  if (count[0] > 0 && count[0] < world_size())
    for (const auto& reason : gather(control.stop_reason))
      if (control.stop_reason.empty()) control.stop_reason = reason;
  for (std::size_t i = 0; i < flags.size(); ++i) *flags[i] = count[i] > 0;
  if (count[5] != 0) {
    signal_ = count[5] >= 1 << 16 ? SIGTERM : SIGINT;
    SignalGuard::adopt(signal_);
  }
}

void Ranks::interruption_point() {
  if (!several() || !InterruptionScope::may()) return etude::interruption_point();
  constexpr std::int64_t every = 8;  // A message may take as long as a small batch.
  if (++calls_ % every != 0) return;
  TrainerControl nothing;
  agree(nothing);
  throw_if_interrupted();
}

std::vector<double> Ranks::sum(std::vector<double> values) const {
  if (left_)
    for (auto& value : values) value *= static_cast<double>(world_size());
  if (!several()) return values;
  communicator_->sum(
      torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, torch::kDouble));
  return values;
}

std::optional<std::int64_t> Ranks::most(std::optional<std::int64_t> number) const {
  if (!several()) return number;
  const auto all = communicator_->gather(torch::tensor(number.value_or(-1), torch::kLong));
  if (all.min().item<std::int64_t>() < 0) return std::nullopt;
  return all.max().item<std::int64_t>();
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  return several() ? communicator_->gather_bytes(text) : std::vector{text};
}

std::vector<nlohmann::json> Ranks::gather_values(const nlohmann::json& value) const {
  if (!several()) return std::vector(1, value);
  const auto bytes = nlohmann::json::to_cbor(value);  // JSON lacks infinities and NaN
  std::vector<nlohmann::json> all;
  for (const auto& each : gather(std::string(bytes.begin(), bytes.end())))
    all.push_back(nlohmann::json::from_cbor(each));
  return all;
}

Metrics Ranks::first(const Metrics& metrics) const {
  if (!several()) return metrics;
  auto own = nlohmann::json::array();
  for (const auto& [name, value] : metrics) own.push_back({name, value});
  Metrics result;
  for (const auto all = gather_values(own); const auto& entry : all.front())
    result[entry[0].get<std::string>()] = entry[1].get<double>();
  return result;
}

void Ranks::average(PendingLogs& logs, bool by_rank) const {
  if (!several()) return;
  auto own = nlohmann::json::array();
  for (const auto& [name, mean] : logs.state())
    own.push_back({name, mean.sum, mean.weight, mean.leading, mean.filtered});
  std::vector<PendingLogState> sums;
  const auto add = [&](const std::string& name, const nlohmann::json& entry) {
    auto known = std::ranges::find(sums, name, &PendingLogState::name);
    if (known == sums.end()) known = sums.insert(known, PendingLogState{name, {}});
    known->mean.sum += entry[1].get<double>();
    known->mean.weight += entry[2].get<double>();
    known->mean.leading += entry[3].get<double>();
    known->mean.filtered += entry[4].get<std::int64_t>();
  };
  const auto all = gather_values(own);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const auto& entry : all[rank]) {
      const auto name = entry[0].get<std::string>();
      add(name, entry);
      if (by_rank) add(fmt::format("{}_rank_{}", name, rank), entry);
    }
  logs.load_state(sums);
}

void Ranks::leave(const std::exception_ptr& error) {
  if (world_size() == 1 || std::exchange(left_, true)) return;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError&) {
    return;
  } catch (...) {
  }
  const auto why = message_of(error);
  communicator_->give_up(why);
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (file == nullptr || *file == '\0') return;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const nlohmann::json report{
      {"message",
       {{"message", fmt::format("rank {} of {}: {}", rank(), world_size(), why)},
        {"extraInfo", {{"py_callstack", ""}, {"timestamp", std::to_string(seconds)}}}}}};
  std::ofstream(file) << report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Ranks::check() const {
  if (left_)
    throw CommunicationError(fmt::format(
        "rank {} of {}: this process has left the others after an exception: start all of them again", rank(),
        world_size()));
}

void Ranks::throw_if_interrupted() const {
  if (!several())
    etude::throw_if_interrupted();
  else if (signal_ != 0)
    throw Interrupted(signal_);
}

void Ranks::begin_training() {
  signal_ = 0;
  stop_is_agreed = memory_is_agreed = false;
}

}  // namespace etude::inline v0
