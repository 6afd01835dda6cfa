#include "etude/optim/flat_optimizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorIndexing.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/cpu_kernels.hpp"

namespace etude::inline v0 {

FlatOptimizer::FlatOptimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay,
                             std::vector<Moment> moments, const Kernels& kernels,
                             std::optional<RoundingOptions> rounding)
    : Optimizer(groups, lr, weight_decay),
      moments_(std::move(moments)),
      kernels_(kernels),
      rounding_(rounding) {
  if (rounding_ && rounding_->rounding == Rounding::kahan)
    moments_.push_back({std::string(detail::compensation_name)});
}

OptimizerTraits FlatOptimizer::traits() const {
  return {.is_elementwise = true, .rounds_bfloat16 = rounding_.has_value()};
}

std::vector<double> FlatOptimizer::numbers(const ParamGroup& /*group*/, std::int64_t /*steps*/) { return {}; }

void FlatOptimizer::update_by_libtorch(const Lists&, const ParamGroup&, std::int64_t /*steps*/) {}

void FlatOptimizer::update() {
  if (in_use_ != WeightsInUse::training)
    throw Error(fmt::format(
        "the parameters hold the average of {}: step() needs use_weights(WeightsInUse::training) before it",
        type()));
  const std::vector<FlatRange>& ranges = begin_step();
  if (layout_ != flat_.layout()) adopt_layout();
  const bool apart = flat_.are_gradients_apart();
  if (generation_ != flat_.generation() || apart != pieces_are_apart_) {
    if (is_prepared_)
      throw Error(
          "the parameters with a gradient in the captured step differ from those in the step before it");
    cut(ranges, apart);
  }
  if (!is_captured())
    begin_groups(ranges);
  else if (!std::exchange(is_prepared_, false))
    write_numbers(0);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (flat_.is_sparse(ranges[i].first))
      update_rows(ranges[i]);
    else if (is_offloaded())
      update_on_host(ranges[i], pieces_[i]);
    else
      update_pieces(i, groups_[ranges[i].group], ranges[i].steps);
  }
  clear_lists();
  if (layout_->is_sharded()) flat_.gather_values();
}

void FlatOptimizer::begin_groups(const std::vector<FlatRange>& /*ranges*/) {}

void FlatOptimizer::update_pieces(std::size_t range, const ParamGroup& group, std::int64_t steps) {
  clear_lists();
  if (is_captured()) {
    lists_.rate = numbers_[range].rate;
    count_ = numbers_[range].steps;
  }
  for (auto& [piece, slot] : pieces_[range]) {
    if (pieces_are_apart_) piece.gradients = flat_.parameter(slot).grad();
    if (is_captured()) piece.numbers = numbers_[range].all;
    update_piece(piece, group, steps);
    if (pieces_are_apart_) piece.gradients.reset();
  }
  if (!lists_.values.empty()) update_by_libtorch(lists_, group, steps);
}

void FlatOptimizer::update_piece(const Range& piece, const ParamGroup& group, std::int64_t steps) {
  const bool has_kernel = in_one_pass() && piece.values.is_cpu() && detail::uses_cpu_kernels();
  if (rounds(piece.values.options()))
    has_kernel ? update_range(piece, group, steps) : update_in_float32(piece, group, steps);
  else if (is_captured() ? !piece.numbers.defined()
                         : kernels_.has_libtorch && kernels_.has_libtorch(piece.values))
    enlist(piece, steps);
  else
    update_range(piece, group, steps);
}

void FlatOptimizer::update_on_host(const FlatRange& range, std::vector<Piece>& pieces) {
  const ParamGroup& group = groups_[range.group];
  HostStage& stage =
      stages_.try_emplace(range.buffer, offloaded_length, layout_->buffers[range.buffer].options)
          .first->second;
  for (std::size_t i = 0; i <= pieces.size(); ++i) {
    if (i < pieces.size()) stage.fetch(i, pieces[i].range.values, pieces[i].range.gradients);
    if (i == 0) continue;
    const Range& there = pieces[i - 1].range;
    Range here = there;
    const auto [values, gradients] = stage.get(i - 1);
    here.values = values;
    here.gradients = gradients;
    clear_lists();
    update_piece(here, group, range.steps);
    if (!lists_.values.empty()) update_by_libtorch(lists_, group, range.steps);
    stage.put_back(i - 1, there.values);
  }
}

void FlatOptimizer::update_rows(const FlatRange& range) {
  const FlatSlot& slot = layout_->slots[range.first];
  if (is_captured())
    throw ArgumentError(fmt::format(
        "cuda_graph is true: must be false with parameter '{}', whose gradient is sparse", slot.name));
  const torch::Tensor& gradient = flat_.coalesced_gradient(range.first);
  const auto here = [&](const torch::Tensor& tensor) {
    return is_offloaded() ? tensor.to(at::kCPU) : tensor;
  };
  std::vector<at::indexing::TensorIndex> rows;
  if (gradient.is_sparse())
    for (const torch::Tensor& index : here(gradient._indices()).unbind()) rows.emplace_back(index);
  if (!rows.empty() && gradient._nnz() == 0) return;

  const torch::Tensor values = slot.view(flat_.values()[range.buffer]);
  Range whole{values, {}, {}};
  add_moments(whole, range.buffer, [&](const torch::Tensor& buffer) { return slot.view(buffer); });
  const auto part_of = [&](const torch::Tensor& tensor) {
    return tensor.defined() && !rows.empty() ? tensor.index(rows).contiguous() : tensor;
  };
  Range part{here(part_of(values)), {}, {}, part_of(whole.compensation), detail::stream_of(slot.name)};
  part.gradients = here(rows.empty() ? at::empty_like(values).copy_(gradient) : gradient._values());
  for (const torch::Tensor& moment : whole.moments) part.moments.push_back(part_of(moment));
  const ParamGroup& group = groups_[range.group];
  clear_lists();
  update_piece(part, group, range.steps);
  if (!lists_.values.empty()) update_by_libtorch(lists_, group, range.steps);

  const auto store = [&](torch::Tensor to, const torch::Tensor& from) {
    if (!rows.empty())
      to.index_put_(rows, from.to(to.device()));
    else if (!from.is_same(to))
      to.copy_(from);
  };
  store(values, part.values);
  for (std::size_t m = 0; m < part.moments.size(); ++m) store(whole.moments[m], part.moments[m]);
  if (part.compensation.defined()) store(whole.compensation, part.compensation);
}

bool FlatOptimizer::set_mode(StepMode mode) {
  flat_.gather();
  const auto is_rounded = [&](const auto& values) { return rounds(values.options()); };
  if (mode == StepMode::captured &&
      (is_offloaded() || flat_.layout()->is_sharded() || std::ranges::any_of(flat_.values(), is_rounded) ||
       numbers(groups_.front(), 1).empty())) {
    if (is_captured()) mode_ = StepMode::plain;
    return false;
  }
  if (mode_ == mode) return true;
  mode_ = mode;
  generation_ = no_generation;
  if (is_offloaded() && layout_) adopt_layout();
  return true;
}

void FlatOptimizer::write_numbers(std::int64_t ahead) {
  const torch::NoGradGuard no_grad;
  begin_groups(flat_.ranges());
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const FlatRange& range = flat_.ranges()[i];
    numbers_[i].rate.fill_(groups_[range.group].lr);
    numbers_[i].steps.fill_(range.steps + ahead);
    if (!numbers_[i].all.defined()) continue;
    const std::vector<double> now = numbers(groups_[range.group], range.steps + ahead);
    for (std::size_t n = 0; n < now.size(); ++n)
      numbers_[i].all.select(0, static_cast<std::int64_t>(n)).fill_(now[n]);
  }
}

void FlatOptimizer::keep_shard(const FlatShard& shard) {
  flat_.keep_shard(shard);
  if (layout_) adopt_layout();
}

NamedTensors FlatOptimizer::gather_state(bool wanted) {
  const torch::NoGradGuard no_grad;
  flat_.mend();
  if (layout_ != flat_.layout()) adopt_layout();
  std::vector<std::vector<torch::Tensor>> wholes(moments_.size());  // indexed like `buffers_`
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    for (std::size_t b = 0; b < buffers_[m].size(); ++b) {
      if (wanted) wholes[m].emplace_back();
      if (m >= count_of_moments(layout_->buffers[b].options)) continue;
      const torch::Tensor whole = layout_->gathered(b, buffers_[m][b]);
      if (wanted) wholes[m].back() = whole.cpu();
    }
  }
  const std::vector<torch::Tensor> units = training_weights_of_units();
  NamedTensors result;
  for (std::size_t i = 0; wanted && i < layout_->slots.size(); ++i) {
    if (flat_.steps(i) == 0) continue;
    const FlatSlot& slot = layout_->slots[i];
    result.emplace_back(slot.name + ".step", torch::scalar_tensor(flat_.steps(i), at::kLong));
    for (std::size_t m = 0; m < count_of_moments(layout_->buffers[slot.buffer].options); ++m)
      result.emplace_back(slot.name + "." + moments_[m].name, slot.view(wholes[m][slot.buffer]));
    if (const auto average = this->average())
      result.emplace_back(slot.name + detail::training_weights_suffix.data(),
                          training_weights(i, slot.view(wholes[average->moment][slot.buffer]), units).cpu());
  }
  return result;
}

NamedTensors FlatOptimizer::moments(std::size_t slot) {
  if (layout_ != flat_.layout()) adopt_layout();
  if (layout_->is_sharded())
    throw Error(
        "this optimizer keeps only a shard of its state: call gather_state in all processes instead of "
        "state");
  NamedTensors result;
  const FlatSlot& place = layout_->slots[slot];
  for (std::size_t m = 0; m < count_of_moments(layout_->buffers[place.buffer].options); ++m)
    result.emplace_back(moments_[m].name, place.view(buffers_[m][place.buffer]));
  if (const auto average = this->average())
    result.emplace_back(detail::training_weights_suffix.substr(1),
                        training_weights(slot, result[average->moment].second));
  return result;
}

Optimizer::NamedSizes FlatOptimizer::moment_sizes(std::size_t slot) {
  NamedSizes result;
  const FlatSlot& place = flat_.layout()->slots[slot];
  const MomentSizes compensation{std::string(detail::compensation_name), place.sizes, at::kShort,
                                 SavedMoment::optional};
  for (std::size_t m = 0; m < count_of_moments(flat_.layout()->buffers[place.buffer].options); ++m)
    result.push_back(moments_[m].name == compensation.name ? compensation
                                                           : MomentSizes{moments_[m].name, place.sizes});
  if (rounding_ && (result.empty() || result.back().name != compensation.name)) {
    result.push_back(compensation);
    result.back().saved = SavedMoment::ignored;
  }
  if (average()) result.push_back({std::string(detail::training_weights_suffix.substr(1)), place.sizes});
  return result;
}

void FlatOptimizer::set_moments(std::size_t slot, const std::vector<torch::Tensor>& values) {
  if (layout_ != flat_.layout()) adopt_layout();
  const FlatSlot& place = layout_->slots[slot];
  const std::size_t count = count_of_moments(layout_->buffers[place.buffer].options);
  for (const FlatSegment& segment : layout_->segments(place.buffer, place.offset, place.offset + place.size))
    for (std::size_t m = 0; m < count; ++m)
      buffers_[m][place.buffer].narrow(0, segment.kept, segment.size).fill_(moments_[m].initial);
  for (std::size_t m = 0; m < std::min(count, values.size()); ++m)
    if (values[m].defined()) store(place, buffers_[m][place.buffer], values[m]);
  if (count < values.size()) set_training_weights(slot, values[count]);
}

void FlatOptimizer::store(const FlatSlot& slot, const torch::Tensor& owned,
                          const torch::Tensor& values) const {
  if (!layout_->is_sharded()) {
    slot.view(owned).copy_(values);
    return;
  }
  const torch::Tensor flat = slot.flattened(values, owned.options());
  for (const auto& [begin, size, kept] : layout_->segments(slot.buffer, slot.offset, slot.offset + slot.size))
    owned.narrow(0, kept, size).copy_(flat.narrow(0, begin - slot.offset, size));
}

bool FlatOptimizer::uses_kernels() const {
  const auto is_plain = [this](const torch::Tensor& values) {
    return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble ||
                               rounds(values.options()));
  };
  return detail::uses_cpu_kernels() && in_one_pass() && !is_offloaded() && !is_captured() &&
         std::ranges::all_of(flat_.values(), is_plain);
}

void FlatOptimizer::clear_lists() {
  for (auto* list : {&lists_.values, &lists_.gradients, &lists_.steps}) list->clear();
  for (auto& list : lists_.moments) list.clear();
  lists_.rate.reset();
  count_.reset();
}

void FlatOptimizer::enlist(const Range& range, std::int64_t steps) {
  if (!count_.defined())
    count_ = at::full({}, static_cast<double>(steps), range.values.options().dtype(at::kFloat));
  lists_.steps.push_back(count_);
  lists_.values.push_back(range.values);
  lists_.gradients.push_back(range.gradients);
  lists_.moments.resize(range.moments.size());
  for (std::size_t m = 0; m < range.moments.size(); ++m) lists_.moments[m].push_back(range.moments[m]);
}

void FlatOptimizer::adopt_layout() {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<const FlatLayout> before = std::exchange(layout_, flat_.layout());
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    std::vector<torch::Tensor> buffers = allocate(m);
    if (!before) {
      buffers_.push_back(std::move(buffers));
      continue;
    }
    std::vector<torch::Tensor> wholes;
    for (std::size_t b = 0; b < before->buffers.size(); ++b)
      wholes.push_back(buffers_[m][b].defined() ? before->gathered(b, buffers_[m][b]) : torch::Tensor());
    for (const FlatSlot& slot : layout_->slots)
      if (const FlatSlot* old = before->find(slot.name);
          old && wholes[old->buffer].defined() && buffers[slot.buffer].defined())
        store(slot, buffers[slot.buffer], old->view(wholes[old->buffer]));
    buffers_[m] = std::move(buffers);
  }
  stages_.clear();
  generation_ = no_generation;
}

void FlatOptimizer::cut(const std::vector<FlatRange>& ranges, bool apart) {
  generation_ = flat_.generation();
  pieces_are_apart_ = apart;
  pieces_.clear();
  numbers_.clear();
  for (const FlatRange& range : ranges) {
    if (is_captured()) {
      const auto options = layout_->buffers[range.buffer].options;
      const auto number = at::zeros({}, options.dtype(at::kFloat));
      numbers_.push_back({number, number.clone()});
      if (!kernels_.has_capturable || !kernels_.has_capturable(flat_.values()[range.buffer])) {
        const auto count = static_cast<std::int64_t>(numbers(groups_[range.group], 1).size());
        numbers_.back().all = at::zeros({count}, options.dtype(at::kDouble));
      }
    }
    std::vector<Piece>& pieces = pieces_.emplace_back();
    if (flat_.is_sparse(range.first)) continue;
    if (apart)
      cut_by_parameters(range, pieces);
    else
      cut_by_length(range, pieces);
  }
}

void FlatOptimizer::cut_by_parameters(const FlatRange& range, std::vector<Piece>& pieces) {
  for (std::size_t i = range.first; i < range.last; ++i) {
    const FlatSlot& slot = layout_->slots[i];
    if (slot.size == 0) continue;
    Range piece{slot.view(flat_.values()[slot.buffer]), {}, {}};
    add_moments(piece, slot.buffer, [&](const torch::Tensor& buffer) { return slot.view(buffer); });
    piece.stream = detail::stream_of(slot.name);
    pieces.push_back({std::move(piece), i});
  }
}

void FlatOptimizer::cut_by_length(const FlatRange& range, std::vector<Piece>& pieces) {
  if (!rounds(layout_->buffers[range.buffer].options)) {
    cut_by_length(range.buffer, range.offset, range.size, pieces);
    return;
  }
  for (std::size_t i = range.first; i < range.last; ++i) {
    const FlatSlot& slot = layout_->slots[i];
    const auto before = pieces.size();
    cut_by_length(slot.buffer, slot.offset, slot.size, pieces);
    for (auto p = before; p < pieces.size(); ++p) pieces[p].range.stream = detail::stream_of(slot.name);
  }
}

void FlatOptimizer::cut_by_length(std::size_t buffer, std::int64_t offset, std::int64_t size,
                                  std::vector<Piece>& pieces) {
  const torch::Tensor &values = flat_.values()[buffer], &owned = flat_.owned_values(buffer);
  const torch::Tensor& gradients = flat_.gradients()[buffer];
  const std::int64_t length = longest_piece(values);
  for (const FlatSegment& segment : layout_->segments(buffer, offset, offset + size)) {
    for (std::int64_t done = 0; done < segment.size; done += length) {
      const std::int64_t begin = segment.begin + done, kept = segment.kept + done;
      const std::int64_t count = std::min(length, segment.size - done);
      Range piece{owned.defined() ? owned.narrow(0, kept, count) : values.narrow(0, begin, count),
                  gradients.narrow(0, layout_->shard.gradients ? kept : begin, count),
                  {}};
      add_moments(piece, buffer, [&](const torch::Tensor& all) { return all.narrow(0, kept, count); });
      piece.first = begin - offset;
      pieces.push_back({std::move(piece)});
    }
  }
}

template <class ViewOf>
void FlatOptimizer::add_moments(Range& range, std::size_t buffer, const ViewOf& view_of) const {
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    if (moments_[m].name != detail::compensation_name)
      range.moments.push_back(view_of(buffers_[m][buffer]));
    else if (buffers_[m][buffer].defined())
      range.compensation = view_of(buffers_[m][buffer]);
  }
}

bool FlatOptimizer::rounds(const torch::TensorOptions& options) const {
  return rounding_ && options.dtype() == at::kBFloat16;
}

std::size_t FlatOptimizer::count_of_moments(const torch::TensorOptions& options) const {
  const bool is_without = rounding_ && rounding_->rounding == Rounding::kahan && !rounds(options);
  return moments_.size() - (is_without ? 1 : 0);
}

std::vector<torch::Tensor> FlatOptimizer::allocate(std::size_t moment) const {
  const auto& [name, initial] = moments_[moment];
  if (name != detail::compensation_name) return layout_->allocate_owned(initial, is_offloaded());
  std::vector<torch::Tensor> result;
  for (const auto& buffer : layout_->buffers) {
    result.emplace_back();
    if (!rounds(buffer.options)) continue;
    const torch::TensorOptions options = is_offloaded() ? on_host(buffer.options) : buffer.options;
    result.back() = at::zeros({buffer.size / layout_->shard.count}, options.dtype(at::kShort));
  }
  return result;
}

detail::Bfloat16Rounding FlatOptimizer::rounding_of(const Range& range, std::int64_t steps) const {
  const auto [rounding, seed] = rounding_.value_or(RoundingOptions());
  return {rounding, {static_cast<std::uint64_t>(seed), range.stream, steps}, range.first, range.compensation};
}

void FlatOptimizer::update_in_float32(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const auto by = rounding_of(range, steps);
  Range wide{detail::in_float32(range.values, range.compensation), range.gradients.to(at::kFloat), {}};
  for (const torch::Tensor& moment : range.moments) wide.moments.push_back(detail::in_float32(moment));
  update_range(wide, group, steps);
  for (std::size_t m = 0; m < range.moments.size(); ++m)
    detail::store_rounded(range.moments[m], wide.moments[m], Rounding::stochastic, by, m);
  detail::store_rounded(range.values, wide.values, by.rounding, by, range.moments.size());
}

std::int64_t FlatOptimizer::piece_length() {
  return std::int64_t{32768} * std::max(1, at::get_num_threads());
}

std::int64_t FlatOptimizer::longest_piece(const torch::Tensor& values) const {
  if (is_offloaded()) return offloaded_length;
  if (values.is_cpu() && !in_one_pass()) return piece_length();
  constexpr std::int64_t copied = 1 << 22;  // limits the memory of float32 copies
  return rounds(values.options()) && !values.is_cpu() ? copied : std::numeric_limits<std::int64_t>::max();
}

namespace detail {

std::string must_be_zero(std::string_view name, double value) {
  return value == 0 ? "" : fmt::format("and {} is {}: must be 0 for it", name, value);
}

void refuse_weight_decay(const ParamGroup& group, std::string_view optimizer) {
  if (group.weight_decay != 0 && !group.parameters.empty())
    throw ArgumentError(fmt::format("weight_decay is {}: must be 0, since {} doesn't support it",
                                    group.weight_decay, optimizer));
}

}  // namespace detail

}  // namespace etude::inline v0
