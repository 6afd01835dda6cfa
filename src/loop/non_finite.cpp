#include "etude/loop/non_finite.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/non_finite_origin.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Whether a number on the CPU is finite.
bool is_finite_on_cpu(const torch::Tensor& number) {
  switch (number.scalar_type()) {
    case torch::kFloat:
      return std::isfinite(*number.data_ptr<float>());
    case torch::kDouble:
      return std::isfinite(*number.data_ptr<double>());
    default:
      return std::isfinite(number.item<double>());
  }
}

/// Whether `number` and `others`, all on one device, are finite; waits once for a device that isn't the CPU.
bool are_finite(const torch::Tensor& number, at::TensorList others) {
  if (number.is_cpu()) return is_finite_on_cpu(number) && std::ranges::all_of(others, is_finite_on_cpu);
  const torch::NoGradGuard no_grad;
  auto all = torch::isfinite(number).all();
  for (const auto& other : others) all.logical_and_(torch::isfinite(other).all());
  return all.item<bool>();
}

/// The examples in these rows of the `number`-th batch of a group, with their indices in train_dataset.
std::string examples_of(const TrainerCore& core, std::size_t number, std::size_t of,
                        const std::vector<std::int64_t>& rows) {
  constexpr std::size_t most = 8;
  const auto& position = core.progress.position;
  const auto* loader = core.train_dataloader.get();  // null for batches of a program's own loop
  const auto first =
      loader ? position.examples + static_cast<std::int64_t>(number) * loader->options().global_batch_size()
             : 0;
  std::vector<std::int64_t> shown, indices;
  for (const auto row : rows) {
    if (shown.size() == most) break;
    shown.push_back(row);
    if (!loader) continue;
    if (const auto index = loader->index_of(position.epoch, first, row)) indices.push_back(*index);
  }
  auto text = fmt::format("example{} {}", shown.size() == 1 ? "" : "s", fmt::join(shown, ", "));
  if (rows.size() > most) text += fmt::format(" and {} more", rows.size() - most);
  text += of == 1 ? " of the batch" : fmt::format(" of batch {} of {}", number + 1, of);
  if (!indices.empty()) text += fmt::format(" (train_dataset[{}])", fmt::join(indices, "], train_dataset["));
  return text;
}

}  // namespace

}  // namespace detail

void NonFiniteUpdates::begin_group() { group_begin_.emplace(events_); }

bool NonFiniteUpdates::accepts(const torch::Tensor& grad_norm) {
  const auto losses = core_.ranks.several() ? at::TensorList() : at::TensorList(core_.group.losses());
  if (!detail::are_finite(grad_norm, losses)) {
    norm_is_finite_ = detail::are_finite(grad_norm, {});
    return false;
  }
  if (std::exchange(may_copy_, false) && core_.args.on_non_finite == OnNonFinite::restore) copy_state();
  return true;
}

void NonFiniteUpdates::copy_state() {
  if (good_ && ++updates_since_good_ < updates_per_copy) return;
  const Snapshot<part::Buffers> after(events_);  // this batch's forward pass isn't part of the state
  group_begin_->restore<part::Buffers>();
  good_.emplace(events_);
  after.restore();
  step_of_good_ = core_.state.global_step;
  updates_since_good_ = 0;
  restores_ = 0;
}

void NonFiniteUpdates::reject(const std::vector<Batch>& group, std::optional<ComputeLoss> compute_loss) {
  has_rejected_ = true;
  const auto turn = core_.optimizers.turn();
  const auto of_optimizer = turn && core_.optimizers.size() > 1
                                ? fmt::format(" for the optimizer '{}'", core_.optimizers[*turn].name)
                                : "";
  const auto step = core_.state.global_step + 1;
  auto reason = norm_is_finite_ ? fmt::format("a loss of step {}{} isn't finite", step, of_optimizer)
                                : fmt::format("the gradients of step {}{} aren't finite", step, of_optimizer);
  if (compute_loss && diagnoses_++ < most_diagnoses) reason += diagnose(group, *compute_loss);
  group_begin_->restore<part::Buffers>();
  if (core_.args.on_non_finite == OnNonFinite::stop) stop(reason);
  auto& in_a_row = core_.progress.rejected_in_a_row;
  // The last skipped update isn't counted, because a resumed training repeats it.
  if (in_a_row >= most_in_a_row - 1)
    stop(fmt::format("the last {} updates have been skipped, since {}", most_in_a_row, reason));
  detail::count_up(in_a_row);
  std::string restored;
  if (core_.args.on_non_finite == OnNonFinite::restore && good_) {
    if (restores_++ == most_restores)
      stop(fmt::format("after {} returns to the weights of step {}, {}", most_restores, step_of_good_,
                       reason));
    restored = restore();
  }
  message(core_.args, LogLevel::warning, "{}: its update is skipped{}", reason, restored);
}

std::string NonFiniteUpdates::restore() {
  // The learning rates keep their current place in the schedule.
  std::vector<LearningRates> rates;
  for (const auto& each : core_.optimizers) rates.emplace_back(*each.optimizer);
  good_->restore();
  for (std::size_t i = 0; i < rates.size(); ++i) rates[i].restore(*core_.optimizers[i].optimizer);
  return fmt::format(", and the weights of step {} are restored", step_of_good_);
}

void NonFiniteUpdates::stop(const std::string& reason) {
  core_.ranks.stop_is_agreed = true;  // All processes have the same norm.
  throw StopTraining(reason);
}

std::string NonFiniteUpdates::diagnose(const std::vector<Batch>& group, ComputeLoss compute_loss) {
  if (core_.sharded_units) return "";  // Its forward passes send messages to the other processes.
  const Snapshot<part::Generators> after(events_);
  std::string text;
  try {
    group_begin_->restore();
    for (std::size_t i = 0; i < group.size() && text.empty(); ++i) {
      std::int64_t first_row = 0;
      core_.group.in_parts(group[i],
                           core_.args.auto_microbatching ? core_.part_size.of(group[i].size)
                                                         : std::max<std::int64_t>(group[i].size, 1),
                           [&](const Batch& part) {
                             const auto begin = std::exchange(first_row, first_row + part.size);
                             if (!text.empty()) return;
                             auto found = find_non_finite(core_.model, part, compute_loss,
                                                          /*backward=*/!core_.recomputed_units);
                             if (found.text.empty()) return;
                             text = std::move(found.text);
                             for (auto& row : found.rows) row += begin;
                             if (!found.rows.empty())
                               text += ", in " + detail::examples_of(core_, i, group.size(), found.rows);
                             else if (group.size() > 1)
                               text += fmt::format(", in batch {} of {}", i + 1, group.size());
                           });
    }
    if (text.empty()) text = "run again, its batches gave finite numbers";
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {
    text = fmt::format("its batches can't be run again: {}", message_of(std::current_exception()));
  }
  after.restore();
  if (!core_.ranks.several()) return ": " + text;
  std::string all;
  const auto texts = core_.ranks.gather(text);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    all += fmt::format("{} in rank {}, {}", rank == 0 ? ":" : ";", rank, texts[rank]);
  return all;
}

NonFiniteUpdates::NonFiniteUpdates(EventSource& events) : events_(events), core_(events.core()) {}

NonFiniteUpdates::~NonFiniteUpdates() = default;

void NonFiniteUpdates::begin_step() {
  has_rejected_ = false;
  may_copy_ = true;
}

}  // namespace etude::inline v0
