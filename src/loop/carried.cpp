#include "etude/loop/carried.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/message.hpp"
#include "etude/checkpoint/checkpoint.hpp"
#include "etude/formats/mapped_tensor.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/model/carried_state.hpp"

namespace etude::inline v0 {

namespace detail {

StateDict tensors_of_others(const Ranks& ranks, const StateDict& own) {
  StateDict result;
  if (!ranks.several()) return result;
  auto packed = nlohmann::json::array();
  for (const auto& [name, tensor] : own) {
    const auto host = tensor.cpu().contiguous();
    packed.push_back({name, c10::toString(host.scalar_type()), host.sizes().vec(),
                      std::string(static_cast<const char*>(host.data_ptr()), host.nbytes())});
  }
  const auto all = ranks.gather_values(packed);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    for (const auto& entry : all[rank]) {
      auto tensor = torch::empty(entry[2].get<std::vector<std::int64_t>>(),
                                 scalar_type_named(entry[1].get<std::string>()).value());
      const auto& items = entry[3].get_ref<const std::string&>();
      if (!items.empty()) std::memcpy(tensor.data_ptr(), items.data(), items.size());
      result.emplace_back(fmt::format("ranks.{}.{}", rank, entry[0].get<std::string>()), std::move(tensor));
    }
  return result;
}

StateDict carried_state_of_all(const Ranks& ranks, const Trained& trained, bool in_group) {
  if (trained.carried.empty()) return {};
  const auto own = trained.carried.tensors();
  auto all = tensors_of_others(ranks, StateDict(own.begin(), own.end()));
  all.insert(all.end(), own.begin(), own.end());
  if (in_group && trained.work_begin)
    for (const auto& [name, tensor] : trained.work_begin->get<part::Carried>().tensors)
      all.emplace_back("group." + name, tensor);
  return all;
}

void take_own_carried(const RunSettings& run, const RunPosition& now, ResumePoint& point) {
  const auto& then = *point.progress;
  const auto& position = now.progress.position;
  auto own = std::exchange(point.carried, {});
  auto at_begin = std::exchange(point.group_carried, {});
  if (own.empty() || position.examples + position.micro_batches == 0 || !now.progress.loop.epoch_is_open())
    return;
  if (then.world_size != run.ranks.world_size() ||
      then.train_batch_size != run.args.per_device_train_batch_size) {
    message(
        run.args, LogLevel::warning,
        "resuming {}: the state that the model carries is that of {} processes with batches of {}, not of {} "
        "with {}: it begins with zeros",
        point.path.string(), then.world_size, then.train_batch_size, run.ranks.world_size(),
        run.args.per_device_train_batch_size);
    return;
  }
  // A half-done group may have to start again.
  const bool restarts = then.position.micro_batches > 0 && position.micro_batches == 0;
  for (auto& [name, tensor] : restarts ? at_begin : own)
    if (auto [rank, of_rank] = rank_and_name(name); rank == run.ranks.rank())
      point.carried.emplace(std::move(of_rank), tensor);
  point.group_carried = std::move(at_begin);
}

void load_carried(const RunSettings& run, const CarriedStates& carried, const CarriedTensors& tensors) {
  CarriedTensors copies;
  for (const auto& [name, tensor] : tensors)
    copies.emplace(name, tensor.to(run.device, /*non_blocking=*/false, /*copy=*/true));
  if (const auto unknown = carried.load(copies); !unknown.empty())
    message(run.args, LogLevel::warning,
            "the checkpoint has state that the model doesn't carry: {} isn't used", fmt::join(unknown, ", "));
}

}  // namespace detail
}  // namespace etude::inline v0
